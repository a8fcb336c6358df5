//! Begins a request's trace, and tells engines of it.

use http::HeaderMap;
use pingora_core::Result;
use pingora_http::RequestHeader;

use super::Router;
use crate::traces::{TRACEPARENT, TRACESTATE, Trace};

impl Router {
    /// The trace of a request with these fields; `None` where traces are off.
    pub(super) fn begin_trace(&self, fields: &HeaderMap) -> Option<Trace> {
        let tracer = self.tracer.as_ref()?;
        Some(tracer.begin(fields, (rand::random(), rand::random())))
    }
}

/// Makes the attempt with this number, counted from 1, the parent of whatever the engine records.
/// Without a trace, what the client said of its own goes on unchanged.
pub(super) fn to_engine(
    request: &mut RequestHeader,
    trace: Option<&Trace>,
    attempt: u32,
) -> Result<()> {
    let Some(trace) = trace else {
        return Ok(());
    };
    request.insert_header(TRACEPARENT, trace.told_to_engine(attempt).to_string())?;
    if !trace.keeps_state() {
        request.remove_header(&TRACESTATE);
    }
    Ok(())
}
