//! Source to machine code: NVRTC, with a cache on disk.

use super::source::{CudaSource, HEADERS};
use crate::{Error, Result};
use cudarc::nvrtc::sys;
use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What NVRTC made of one source.
pub struct Compiled {
    /// Machine code for the one architecture asked for.
    pub cubin: Vec<u8>,
    /// The compiler's log: warnings, and the registers, shared memory and spills of each kernel.
    pub log: String,
    /// Came from the cache.
    pub cached: bool,
}

/// Registers, shared memory and spills of one kernel, as ptxas reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources {
    pub kernel: String,
    pub registers: u32,
    /// Static shared memory, bytes.
    pub shared: u32,
    /// Spill stores and loads, bytes.
    pub spills: u32,
}

/// Options every kernel is compiled with. No fast-math: kernels say where they fuse; `-v` puts the resources into the log.
const OPTIONS: &[&str] = &["--std=c++17", FUSED, "-lineinfo", "--ptxas-options=-v", "--device-as-default-execution-space"];
const FUSED: &str = "--fmad=true";

/// Loads NVRTC once: from `QASSAY_NVRTC` (a folder), from `.tools/nvrtc` where `make test` puts it, from the site-packages that pip
/// installed it in beside this program or into the active environment, or from the system. Errors with what was tried.
pub fn load() -> Result<()> {
    static LOADED: OnceLock<std::result::Result<(), String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let given = std::env::var_os("QASSAY_NVRTC").map(PathBuf::from);
        let tools = PathBuf::from(".tools/nvrtc/nvidia/cu13/lib");
        // A program that has its data inside runs where its source never was.
        let source = (!cfg!(feature = "embed")).then(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(&tools));
        'folders: for folder in given.iter().cloned().chain([tools]).chain(source).chain(from_pip()) {
            // The builtins first: NVRTC looks for them by name and finds what is already loaded.
            let mut files = vec![("libnvrtc.so.13".to_string(), true)];
            files.splice(0..0, builtins(&folder).into_iter().map(|f| (f, false)));
            for (file, required) in files {
                // SAFETY: NVIDIA's libraries run no code on loading that this program relies on; the handle is leaked, so
                // nothing loaded from it can dangle.
                match unsafe { libloading::Library::new(folder.join(file)) } {
                    Ok(library) if required => {
                        std::mem::forget(library);
                        break 'folders;
                    }
                    Ok(library) => std::mem::forget(library),
                    Err(e) if required && given.as_ref() == Some(&folder) => return Err(format!("QASSAY_NVRTC: {e}")),
                    Err(_) => {}
                }
            }
        }
        // SAFETY: asks the dynamic loader whether a library of that name can be opened.
        match unsafe { sys::is_culib_present() } {
            true => Ok(()),
            false => Err("there is no libnvrtc".into()),
        }
    });
    loaded.clone().map_err(|why| {
        let remedy =
            "install CUDA 13.0, or `pip install nvidia-cuda-nvrtc==13.0.88`, or set QASSAY_NVRTC to the folder of libnvrtc.so.13";
        Error::unsupported("NVRTC", format!("{why}; {remedy}"))
    })
}

/// The libraries of an NVRTC's own functions in `folder`.
fn builtins(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|n| n.starts_with("libnvrtc-builtins.so.13")).collect()
}

/// Folders in which pip puts NVRTC 13: of the environment that this program lies in (`bin` beside `lib`), and of the active one.
fn from_pip() -> Vec<PathBuf> {
    let own = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.to_path_buf()));
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(std::env::var_os).map(PathBuf::from);
    let mut found = Vec::new();
    for lib in own.into_iter().chain(active).map(|root| root.join("lib")) {
        for python in std::fs::read_dir(&lib).into_iter().flatten().flatten() {
            if python.file_name().to_string_lossy().starts_with("python3") {
                found.push(python.path().join("site-packages/nvidia/cu13/lib"));
            }
        }
    }
    found.retain(|folder| folder.is_dir());
    found
}

/// NVRTC's version, `13.0`.
pub fn version() -> Result<String> {
    load()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: NVRTC is loaded; it writes two ints.
    check(unsafe { sys::nvrtcVersion(&mut major, &mut minor) }, "nvrtcVersion")?;
    Ok(format!("{major}.{minor}"))
}

/// Compiles `source`, all of it or the kernel `entry` alone, for `arch` (`sm_90a`) with the shared headers and `defines` (`-DNAME=VALUE`), or takes it
/// from the cache, whose key is the SHA-256 of sources, options and NVRTC's version.
///
/// Errors: NVRTC is missing; the source does not compile (the log, with file and line).
pub fn compile(source: &CudaSource, entry: Option<&str>, arch: &str, defines: &[String]) -> Result<Compiled> {
    let text = entry.map_or(Cow::Borrowed(source.text), |entry| Cow::Owned(source.only(entry)));
    let mut options: Vec<String> = OPTIONS.iter().map(ToString::to_string).collect();
    if !source.fuses() {
        options.iter_mut().filter(|o| *o == FUSED).for_each(|o| *o = "--fmad=false".into());
    }
    options.push(format!("--gpu-architecture={arch}"));
    options.extend_from_slice(defines);
    let mut identity = format!("{}\n{}\n", version()?, options.join("\n"));
    let headers = HEADERS.iter().map(|h| (h.name, h.text));
    for (name, text) in std::iter::once((source.name, &*text)).chain(headers) {
        identity += &format!("{name} {}\n{text}\n", text.len());
    }
    let entry = cache().map(|folder| folder.join(crate::compare::sha256(identity.as_bytes())));
    if let Some((cubin, log)) = entry.as_deref().and_then(read_entry) {
        return Ok(Compiled { cubin, log, cached: true });
    }
    // One process makes an entry, the others wait for it. A lock that cannot be had is no error: all make it then.
    let lock = entry.as_deref().and_then(|entry| std::fs::File::create(entry.with_extension("lock")).ok());
    let held = lock.as_ref().is_some_and(|lock| lock.lock().is_ok());
    if let Some((cubin, log)) = entry.as_deref().filter(|_| held).and_then(read_entry) {
        return Ok(Compiled { cubin, log, cached: true });
    }
    let (cubin, log) = invoke(&text, &format!("kernels/{}", source.name), &options)?;
    if let Some(entry) = entry {
        write_entry(&entry, &cubin, &log);
        if held {
            drop(std::fs::remove_file(entry.with_extension("lock")));
        }
    }
    Ok(Compiled { cubin, log, cached: false })
}

/// Compiles a user's source, whose `#include`s are found in `folders`, in CUDA's own where it is installed, and among ours. Nothing is
/// cached: what it includes may change. Errors: those of [`compile`].
pub fn compile_user(path: &str, text: &str, arch: &str, folders: &[PathBuf]) -> Result<Compiled> {
    let mut options: Vec<String> = OPTIONS.iter().map(ToString::to_string).collect();
    options.push(format!("--gpu-architecture={arch}"));
    let installed = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(std::env::var_os).map(|p| PathBuf::from(p).join("include"));
    let usual = std::iter::once(PathBuf::from("/usr/local/cuda/include"));
    for folder in folders.iter().cloned().chain(installed).chain(usual).filter(|f| f.is_dir()) {
        options.push(format!("--include-path={}", folder.display()));
    }
    load()?;
    let (cubin, log) = invoke(text, path, &options)?;
    Ok(Compiled { cubin, log, cached: false })
}

/// `QASSAY_CACHE`, else `qassay` in the user's cache folder.
fn cache() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let folder = set("QASSAY_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache"))).map(|c| c.join("qassay")))?;
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder)
}

fn read_entry(entry: &Path) -> Option<(Vec<u8>, String)> {
    let (cubin, log) =
        (std::fs::read(entry.with_extension("cubin")).ok()?, std::fs::read_to_string(entry.with_extension("log")).ok()?);
    // Every cubin is an ELF file; anything else was damaged and is made again.
    cubin.starts_with(b"\x7fELF").then_some((cubin, log))
}

/// Writes beside and renames, so that a reader never sees half an entry. A cache that cannot be written is no error.
fn write_entry(entry: &Path, cubin: &[u8], log: &str) {
    let place = |extension: &str, bytes: &[u8]| -> std::io::Result<()> {
        let partial = entry.with_extension(format!("{extension}.{}", std::process::id()));
        std::fs::write(&partial, bytes)?;
        std::fs::rename(partial, entry.with_extension(extension))
    };
    if let Err(e) = place("log", log.as_bytes()).and_then(|()| place("cubin", cubin)) {
        tracing::warn!("{}: {e}; compiled kernels are not kept", entry.display());
    }
}

fn check(result: sys::nvrtcResult, what: &str) -> Result<()> {
    match result {
        sys::nvrtcResult::NVRTC_SUCCESS => Ok(()),
        other => Err(Error::unsupported("NVRTC", format!("{what} returned {other:?}"))),
    }
}

/// A program that is destroyed with its owner.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created by nvrtcCreateProgram, destroyed once.
        unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

fn invoke(text: &str, name: &str, options: &[String]) -> Result<(Vec<u8>, String)> {
    let c = |s: &str| CString::new(s).map_err(|_| Error::value("source or option", "a NUL byte", "text"));
    let (text, title) = (c(text)?, c(name)?);
    let headers = HEADERS.iter().map(|h| c(h.text)).collect::<Result<Vec<_>>>()?;
    let names = HEADERS.iter().map(|h| c(h.name)).collect::<Result<Vec<_>>>()?;
    let given = options.iter().map(|o| c(o)).collect::<Result<Vec<_>>>()?;
    let pointers = |v: &[CString]| v.iter().map(|s| s.as_ptr()).collect::<Vec<_>>();
    let mut raw = std::ptr::null_mut();
    // SAFETY: all pointers are to NUL-terminated strings that outlive the calls; counts match the arrays.
    unsafe {
        let created = sys::nvrtcCreateProgram(
            &mut raw,
            text.as_ptr(),
            title.as_ptr(),
            headers.len() as i32,
            pointers(&headers).as_ptr(),
            pointers(&names).as_ptr(),
        );
        check(created, "nvrtcCreateProgram")?;
        let program = Program(raw);
        let result = sys::nvrtcCompileProgram(program.0, given.len() as i32, pointers(&given).as_ptr());
        let mut size = 0;
        check(sys::nvrtcGetProgramLogSize(program.0, &mut size), "nvrtcGetProgramLogSize")?;
        let mut log = vec![0u8; size.max(1)];
        check(sys::nvrtcGetProgramLog(program.0, log.as_mut_ptr().cast()), "nvrtcGetProgramLog")?;
        let log = CStr::from_bytes_until_nul(&log).map_or(String::new(), |l| l.to_string_lossy().into_owned());
        if result != sys::nvrtcResult::NVRTC_SUCCESS {
            // Not `unsupported`: a sweep would skip the case.
            let found = format!(
                "a source that does not compile ({result:?}):
{}",
                log.trim_end()
            );
            return Err(Error::value(format!("{name} with {}", options.join(" ")), found, "one that does"));
        }
        check(sys::nvrtcGetCUBINSize(program.0, &mut size), "nvrtcGetCUBINSize")?;
        let mut cubin = vec![0u8; size];
        check(sys::nvrtcGetCUBIN(program.0, cubin.as_mut_ptr().cast()), "nvrtcGetCUBIN")?;
        Ok((cubin, log))
    }
}

/// The resources of each kernel in a log, as `ptxas -v` words them.
pub fn resources(log: &str) -> Vec<Resources> {
    let number_before = |line: &str, what: &str| -> u32 {
        let before = line.split(what).next().filter(|b| b.len() < line.len());
        before.and_then(|b| b.split_whitespace().last()?.trim_start_matches('+').parse().ok()).unwrap_or(0)
    };
    let mut found: Vec<Resources> = Vec::new();
    for line in log.lines() {
        if let Some(name) = line.split("Compiling entry function '").nth(1).and_then(|r| r.split('\'').next()) {
            found.push(Resources { kernel: name.into(), registers: 0, shared: 0, spills: 0 });
        }
        if let Some(last) = found.last_mut() {
            last.spills += number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
            if line.contains("Used ") && line.contains(" registers") {
                last.registers = number_before(line, " registers");
                last.shared = number_before(line, " bytes smem");
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_read_from_the_log() {
        let log = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'cast' for 'sm_90a'\n\
            ptxas info    : Function properties for cast\n    0 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n\
            ptxas info    : Used 40 registers, used 1 barriers, 1056 bytes smem, 400 bytes cmem[0]\n";
        let expected = Resources { kernel: "cast".into(), registers: 40, shared: 1056, spills: 20 };
        assert_eq!(resources(log), [expected]);
    }
}
