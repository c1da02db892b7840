//! The GPUs of this machine.

use crate::{Error, Result};
use cudarc::driver::{CudaContext, DriverError, result, sys};
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

/// How many GPUs are visible. Errors say what is missing; never panics where there is no driver.
fn count() -> Result<usize> {
    // SAFETY: asks the dynamic loader whether libcuda can be opened.
    if !unsafe { sys::is_culib_present() } {
        let remedy = "install NVIDIA's driver, or use --backend cpu";
        return Err(Error::unsupported("this machine", format!("there is no NVIDIA driver (libcuda); {remedy}")));
    }
    CudaContext::device_count().map(|count| count as usize).map_err(failed)
}

fn failed(e: DriverError) -> Error {
    Error::unsupported("the NVIDIA driver", format!("{e:?}"))
}

/// That there is a GPU of this number.
fn check(ordinal: usize) -> Result<()> {
    let count = count()?;
    if ordinal >= count {
        return Err(Error::value("GPU", ordinal, format!("0 to {} ({count} GPUs here)", count.saturating_sub(1))));
    }
    Ok(())
}

/// Opens GPU `ordinal`. Errors: there is none; the driver's.
pub fn open(ordinal: usize) -> Result<Arc<CudaContext>> {
    check(ordinal)?;
    CudaContext::new(ordinal).map_err(failed)
}

/// Every GPU of this machine; an error with the reason when there is none.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    check(0)?;
    (0..count()?).map(info).collect()
}

/// The fact `driver`, where there is one: the kernel module's version, and the CUDA that it supports.
pub(crate) fn driver() -> Option<(&'static str, String)> {
    let cuda = info(super::launch::chosen()).ok()?.driver;
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    Some(("driver", format!("{}CUDA {cuda}", module(&text).map_or(String::new(), |m| format!("{m}, ")))))
}

/// The version in what the kernel module says of itself.
fn module(text: &str) -> Option<&str> {
    let version = |w: &&str| w.split('.').count() > 1 && w.split('.').all(|n| n.parse::<u32>().is_ok());
    text.lines().next()?.split_whitespace().find(version)
}

/// Reads a GPU's facts, without opening it: a context takes a tenth of a second, and memory. Errors: there is none; the driver's.
pub fn info(ordinal: usize) -> Result<DeviceInfo> {
    use sys::CUdevice_attribute::*;
    check(ordinal)?;
    let device = result::device::get(ordinal as i32).map_err(failed)?;
    // SAFETY: the device was just given by the driver, here and below.
    let attribute = |which| unsafe { result::device::get_attribute(device, which) }.map_err(failed);
    let mut version = 0;
    // SAFETY: the driver is loaded; it writes one int.
    unsafe { sys::cuDriverGetVersion(&mut version) };
    Ok(DeviceInfo {
        ordinal,
        name: result::device::get_name(device).map_err(failed)?,
        capability: (
            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize,
        // SAFETY: as above.
        memory: unsafe { result::device::total_mem(device) }.map_err(failed)?,
        l2: attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as usize,
        driver: format!("{}.{}", version / 1000, version % 1000 / 10),
    })
}

#[cfg(test)]
mod tests {
    use super::module;

    #[test]
    fn the_modules_version_is_read() {
        let gcc = "\nGCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n";
        for (line, version) in [
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024", Some("550.54.15")),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22-I3)",
                Some("580.95.05"),
            ),
            ("NVRM version: unknown", None),
            ("", None),
        ] {
            assert_eq!(module(&format!("{line}{gcc}")), version, "{line}");
        }
    }
}
