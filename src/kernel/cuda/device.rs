//! The GPUs of this machine.

use crate::{Error, Result};
use cudarc::driver::{CudaContext, sys};
use std::sync::Arc;

/// What is known of one GPU.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    pub ordinal: usize,
    pub name: String,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Streaming multiprocessors.
    pub multiprocessors: usize,
    /// Bytes of device memory and of L2.
    pub memory: usize,
    pub l2: usize,
    /// Version of CUDA the driver supports, `13.0`.
    pub driver: String,
}

impl DeviceInfo {
    /// What kernels are compiled for: `sm_90a` on Hopper, whose wgmma needs the `a`; `sm_100a`, `sm_120a` likewise.
    pub fn arch(&self) -> String {
        let (major, minor) = self.capability;
        format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" })
    }
}

/// Opens GPU `ordinal`. Errors say what is missing; never panics where there is no driver.
pub fn open(ordinal: usize) -> Result<Arc<CudaContext>> {
    // SAFETY: asks the dynamic loader whether libcuda can be opened.
    if !unsafe { sys::is_culib_present() } {
        let remedy = "install NVIDIA's driver, or use --backend cpu";
        return Err(Error::unsupported("this machine", format!("libcuda is not here: no NVIDIA driver; {remedy}")));
    }
    let failed = |e| Error::unsupported("the NVIDIA driver", format!("{e:?}"));
    let count = CudaContext::device_count().map_err(failed)? as usize;
    if ordinal >= count {
        return Err(Error::value("GPU", ordinal, format!("0 to {} ({count} GPUs here)", count.saturating_sub(1))));
    }
    CudaContext::new(ordinal).map_err(failed)
}

/// Every GPU of this machine; an error with the reason when there is none.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let first = open(0)?;
    let count = CudaContext::device_count().map_err(|e| Error::unsupported("the NVIDIA driver", format!("{e:?}")))? as usize;
    drop(first);
    (0..count).map(|i| info(&*open(i)?)).collect()
}

/// Reads a GPU's facts.
pub fn info(context: &CudaContext) -> Result<DeviceInfo> {
    use sys::CUdevice_attribute::{CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT};
    let failed = |e| Error::unsupported("the NVIDIA driver", format!("{e:?}"));
    let mut version = 0;
    // SAFETY: the driver is loaded; it writes one int.
    unsafe { sys::cuDriverGetVersion(&mut version) };
    Ok(DeviceInfo {
        ordinal: context.ordinal(),
        name: context.name().map_err(failed)?,
        capability: context.compute_capability().map_err(failed)?,
        multiprocessors: context.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).map_err(failed)? as usize,
        memory: context.total_mem().map_err(failed)?,
        l2: context.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE).map_err(failed)? as usize,
        driver: format!("{}.{}", version / 1000, version % 1000 / 10),
    })
}
