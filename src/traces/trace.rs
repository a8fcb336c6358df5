//! Where one request stands in its trace.

use http::HeaderMap;
use http::header::HeaderName;
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

use super::context::TraceParent;
use super::sampling::Ratio;

/// Names the span a request belongs to.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// What tracing systems add to that.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The longest `tracestate` that is recorded, in bytes: as long as everybody has to pass on. A longer
/// one is passed on all the same.
const MAX_RECORDED_STATE: usize = 512;

/// The trace of one request: whose it is, and which ids its spans have.
///
/// The ids are there from the beginning, as engines are told of them; the spans are made at the
/// end, if the trace is recorded.
#[derive(Clone, Debug)]
pub struct Trace {
    id: TraceId,
    flags: TraceFlags,
    /// The client's span; invalid where the trace begins here.
    parent: SpanId,
    /// The request's own.
    span: SpanId,
    state: Option<TraceState>,
}

impl Trace {
    /// Goes on with the client's trace, recorded or not as the client decided; without one, begins
    /// one of its own, of which the share `ratio` is recorded. `random` becomes its id and that of
    /// the request's span.
    pub fn begin(fields: &HeaderMap, ratio: Ratio, random: (u128, u64)) -> Self {
        // There is one id that is none.
        let (id, span) = (
            TraceId::from(random.0.max(1)),
            SpanId::from(random.1.max(1)),
        );
        match client_parent(fields) {
            Some(parent) => Self {
                id: parent.trace,
                flags: parent.flags,
                parent: parent.span,
                span,
                state: client_state(fields),
            },
            None => Self {
                id,
                flags: TraceFlags::default().with_sampled(ratio.samples(id)),
                parent: SpanId::INVALID,
                span,
                state: None,
            },
        }
    }

    /// Its id.
    pub fn id(&self) -> TraceId {
        self.id
    }

    /// Whether its spans are recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags.is_sampled()
    }

    /// Whether the client's `tracestate` belongs to it, and goes on to engines.
    pub fn keeps_state(&self) -> bool {
        self.state.is_some()
    }

    /// The client's span; [`SpanId::INVALID`] where the trace begins here.
    pub fn parent(&self) -> SpanId {
        self.parent
    }

    /// The request's own span.
    pub fn request(&self) -> SpanContext {
        self.context(self.span)
    }

    /// The span of the attempt with this number, counted from 1.
    ///
    /// It follows from the request's, so that nobody has to keep it.
    pub fn attempt(&self, number: u32) -> SpanContext {
        self.context(self.attempt_id(number))
    }

    /// What the engine is told in the attempt with this number.
    pub fn told_to_engine(&self, number: u32) -> TraceParent {
        TraceParent {
            trace: self.id,
            span: self.attempt_id(number),
            flags: self.flags,
        }
    }

    fn attempt_id(&self, number: u32) -> SpanId {
        let seed = u64::from_be_bytes(self.span.to_bytes());
        SpanId::from(mix(seed, number).max(1))
    }

    fn context(&self, span: SpanId) -> SpanContext {
        let state = self.state.as_ref();
        let state = state.filter(|state| length(state) <= MAX_RECORDED_STATE);
        let state = state.cloned().unwrap_or_default();
        SpanContext::new(self.id, span, self.flags, false, state)
    }
}

/// Bits as good as drawn for each number, and different for any two (`SplitMix64`).
fn mix(seed: u64, number: u32) -> u64 {
    let step = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(number.into());
    let mut bits = seed.wrapping_add(step);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// The client's span, if it names exactly one.
fn client_parent(fields: &HeaderMap) -> Option<TraceParent> {
    let mut given = fields.get_all(TRACEPARENT).iter();
    match (given.next(), given.next()) {
        (Some(value), None) => TraceParent::parse(value.as_bytes()),
        _ => None,
    }
}

/// What the client's tracing systems added, if all of it can be read.
fn client_state(fields: &HeaderMap) -> Option<TraceState> {
    let values = fields.get_all(TRACESTATE).iter();
    let values: Option<Vec<&str>> = values.map(|value| value.to_str().ok()).collect();
    values?.join(",").parse().ok()
}

fn length(state: &TraceState) -> usize {
    // With `=` and a comma each.
    state
        .into_iter()
        .map(|(key, value)| key.len() + value.len() + 2)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use std::collections::HashSet;

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    const RANDOM: (u128, u64) = (0xABC, 0xDEF);

    fn begin(fields: &[(HeaderName, &str)], ratio: Ratio) -> Trace {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            map.append(name, value);
        }
        Trace::begin(&map, ratio, RANDOM)
    }

    fn none() -> Ratio {
        Ratio::new(0.0).unwrap()
    }

    #[test]
    fn a_clients_trace_goes_on_as_the_client_decided() {
        for (parent, sampled) in [(SAMPLED, true), (UNSAMPLED, false)] {
            for ratio in [Ratio::ALL, none()] {
                let trace = begin(&[(TRACEPARENT, parent)], ratio);
                assert_eq!(trace.is_sampled(), sampled);
                assert_eq!(trace.parent().to_string(), "00f067aa0ba902b7");
                let own = trace.request();
                assert_eq!(
                    own.trace_id().to_string(),
                    "4bf92f3577b34da6a3ce929d0e0e4736"
                );
                assert_eq!(own.span_id(), SpanId::from(RANDOM.1));
                assert_eq!(own.is_sampled(), sampled);
            }
        }
    }

    #[test]
    fn without_one_a_trace_begins_here() {
        let ill = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        for fields in [
            &[][..],
            &[(TRACEPARENT, ill)],
            &[(TRACEPARENT, SAMPLED), (TRACEPARENT, SAMPLED)],
        ] {
            let state = [(TRACESTATE, "vendor=1")];
            let fields: Vec<_> = fields.iter().chain(&state).cloned().collect();
            for (ratio, sampled) in [(Ratio::ALL, true), (none(), false)] {
                let trace = begin(&fields, ratio);
                assert_eq!(trace.parent(), SpanId::INVALID);
                assert_eq!(trace.request().trace_id(), TraceId::from(RANDOM.0));
                assert_eq!(trace.is_sampled(), sampled);
                assert!(!trace.keeps_state(), "it belonged to another trace");
            }
        }
    }

    #[test]
    fn no_id_is_the_one_that_means_none() {
        let trace = Trace::begin(&HeaderMap::new(), Ratio::ALL, (0, 0));
        assert!(trace.request().is_valid());
    }

    #[test]
    fn engines_are_told_of_the_span_of_their_attempt() {
        let trace = begin(&[(TRACEPARENT, SAMPLED)], Ratio::ALL);
        let mut seen = HashSet::from([trace.request().span_id()]);
        for number in 1..1000 {
            let (told, span) = (trace.told_to_engine(number), trace.attempt(number));
            assert_eq!((told.trace, told.span), (span.trace_id(), span.span_id()));
            assert!(told.flags.is_sampled());
            assert!(
                seen.insert(told.span),
                "attempt {number} has an id of its own"
            );
        }
        let unsampled = begin(&[], none());
        assert!(!unsampled.told_to_engine(1).flags.is_sampled());
    }

    #[test]
    fn a_state_that_can_be_read_is_kept() {
        let with = |states: &[&str]| {
            let states = states.iter().map(|state| (TRACESTATE, *state));
            let fields: Vec<_> = [(TRACEPARENT, SAMPLED)].into_iter().chain(states).collect();
            begin(&fields, Ratio::ALL)
        };
        let recorded = |trace: &Trace| trace.request().trace_state().header();
        let trace = with(&["rojo=00f067aa0ba902b7", "congo=t61rcWkgMzE"]);
        assert!(trace.keeps_state());
        assert_eq!(recorded(&trace), "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
        let long = format!("a={},b={}", "x".repeat(255), "y".repeat(255));
        let trace = with(&[&long]);
        assert!(trace.keeps_state());
        assert_eq!(recorded(&trace), "", "too long to record");
        for ill in ["A=1", "a", "a=1,b=c=d", "ä=1"] {
            assert!(!with(&[ill]).keeps_state(), "{ill}");
        }
    }
}
