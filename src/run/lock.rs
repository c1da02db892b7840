//! One run a folder: `lock`, held by the system for as long as the process lives.
//!
//! The system drops the lock of a process that died, however it died, so a lock file that can be locked is a stale one.

use crate::{Error, Result};
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Held until it is dropped; the file is removed then.
pub struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Locks the folder. Errors: another process that lives holds it.
    pub fn take(folder: &Path) -> Result<Lock> {
        let path = folder.join("lock");
        let io = |e| Error::io(&path, e, "choose a folder that can be written with --out");
        loop {
            let mut file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
            let mut owner = String::new();
            // At most a process number is expected; what else is there is only shown.
            (&file).take(20).read_to_string(&mut owner).map_err(io)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let taken = std::io::Error::other(format!("process {} runs into this folder", owner.trim()));
                    return Err(Error::io(&path, taken, "wait for it, or name another folder with --out"));
                }
                Err(TryLockError::Error(e)) => return Err(io(e)),
            }
            // The one that held it may have removed the file between our opening and our locking.
            if !same_file(&file, &path) {
                continue;
            }
            if !owner.is_empty() {
                tracing::warn!("{}: process {} is gone; its lock is taken over", path.display(), owner.trim());
            }
            file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0))).map_err(io)?;
            writeln!(file, "{}", std::process::id()).map_err(io)?;
            return Ok(Lock { path, _file: file });
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A file that stays is a stale lock, which the next run takes over.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(unix)]
fn same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |m: &std::fs::Metadata| (m.dev(), m.ino());
    matches!((file.metadata(), std::fs::metadata(path)), (Ok(ref a), Ok(ref b)) if id(a) == id(b))
}

/// An open file cannot be removed there.
#[cfg(not(unix))]
fn same_file(_: &File, _: &Path) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_refuses_a_released_and_a_stale_one_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let held = Lock::take(dir.path()).unwrap();
        let refused = Lock::take(dir.path()).err().unwrap().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        drop(held);
        assert!(!dir.path().join("lock").exists());
        // What a killed process leaves.
        std::fs::write(dir.path().join("lock"), "4194305\n").unwrap();
        assert!(Lock::take(dir.path()).is_ok());
    }
}
