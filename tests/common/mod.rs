//! What the whole-program tests share.

/// The program, run from the repository's root.
pub fn qassay() -> assert_cmd::Command {
    let mut command = assert_cmd::Command::cargo_bin("qassay").expect("the binary is built with the tests");
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}
