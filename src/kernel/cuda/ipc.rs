//! Device memory of another process, read where it lies by its IPC handle (`cuIpcGetMemHandle`).

use super::launch::{Gpu, failed};
use crate::kernel::Elsewhere;
use crate::{Error, Result};
use cudarc::driver::{result, sys};

/// The id of this process's GPU, of an instance of it where it is divided.
fn id(gpu: &Gpu) -> Result<[u8; 16]> {
    let device = result::device::get(gpu.info.ordinal as i32).map_err(|e| failed("cuDeviceGet", e))?;
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: the driver is loaded; it writes 16 bytes.
    unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) }.result().map_err(|e| failed("cuDeviceGetUuid", e))?;
    Ok(uuid.bytes.map(|b| b as u8))
}

/// An allocation of another process, open as long as this lives.
struct Open(sys::CUdeviceptr);

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: it was opened once, by `read`, and is closed once. What an error could mean is said by whoever uses the context next.
        let _ = unsafe { sys::cuIpcCloseMemHandle(self.0) };
    }
}

/// Fills `into`. Errors: the memory is another GPU's; the driver does not open it (memory of a pool or of mapped pages, another container).
pub fn read(gpu: &Gpu, from: &Elsewhere, into: &mut [u8]) -> Result<()> {
    let here = id(gpu)?;
    if here != from.gpu {
        return Err(Error::value("memory of another process", "another GPU's", format!("memory of {}", gpu.info.name)));
    }
    gpu.synchronize("memory of another process")?;
    let handle = sys::CUipcMemHandle { reserved: from.handle.map(|b| b as std::ffi::c_char) };
    let mut base: sys::CUdeviceptr = 0;
    let lazy = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
    // SAFETY: the context is current; the handle is 64 bytes that the driver checks.
    let opened = unsafe { sys::cuIpcOpenMemHandle_v2(&mut base, handle, lazy) };
    opened.result().map_err(|e| failed("cuIpcOpenMemHandle", e))?;
    let open = Open(base);
    let (mut start, mut size) = (0, 0);
    // SAFETY: the driver writes both.
    unsafe { sys::cuMemGetAddressRange_v2(&mut start, &mut size, open.0) }
        .result()
        .map_err(|e| failed("cuMemGetAddressRange", e))?;
    let end = usize::try_from(from.offset).ok().and_then(|o| o.checked_add(into.len()));
    if end.is_none_or(|end| end > size) {
        let found = format!("{} bytes from {} on", into.len(), from.offset);
        return Err(Error::value("memory of another process", found, format!("at most the {size} bytes of its allocation")));
    }
    // SAFETY: so many bytes are there, and their owner waits for the answer.
    unsafe { gpu.download_from(into, open.0 + from.offset) }
}
