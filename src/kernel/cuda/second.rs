//! A second stream, and events between it and the first.

use super::launch::{Gpu, failed};
use crate::Result;
use cudarc::driver::{result, sys};

pub(crate) type Stream = sys::CUstream;
pub(crate) type Event = sys::CUevent;

/// A stream and two events, destroyed when dropped.
pub(crate) struct Second {
    pub stream: Stream,
    pub made: Event,
    pub written: Event,
}

impl Second {
    /// Errors: the driver's.
    pub fn new() -> Result<Self> {
        let event =
            || result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map_err(|e| failed("cuEventCreate", e));
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        Ok(Self { stream: stream.map_err(|e| failed("cuStreamCreate", e))?, made: event()?, written: event()? })
    }

    /// Records `event` on the stream of `gpu`.
    pub fn record(&self, event: Event, gpu: &Gpu) -> Result<()> {
        // SAFETY: event and stream are alive.
        unsafe { result::event::record(event, gpu.stream()) }.map_err(|e| failed("cuEventRecord", e))
    }

    /// Has this stream wait for `event`.
    pub fn wait(&self, event: Event) -> Result<()> {
        // SAFETY: event and stream are alive.
        unsafe { result::stream::wait_event(self.stream, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT) }
            .map_err(|e| failed("cuStreamWaitEvent", e))
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        // SAFETY: each was created by `new` and is destroyed once.
        unsafe {
            let _ = result::event::destroy(self.made);
            let _ = result::event::destroy(self.written);
            let _ = result::stream::destroy(self.stream);
        }
    }
}
