"use strict";
// The button beside a command copies it.
document.addEventListener("click", async (e) => {
  const button = e.target.closest(".copy");
  if (!button) return;
  const command = button.parentElement.querySelector("pre");
  try {
    await navigator.clipboard.writeText(command.textContent);
    button.textContent = "Copied";
  } catch {
    // A page without the right to copy selects it: the reader's own keys do the rest.
    getSelection().selectAllChildren(command);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});
