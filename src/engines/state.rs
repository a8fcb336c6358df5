//! What becomes known of an engine while the process runs.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;

use super::health::Health;

/// What has become known of one engine, shared by all who hold it.
#[derive(Debug)]
pub(super) struct State {
    pub(super) addresses: ArcSwap<Vec<SocketAddr>>,
    /// How often they have changed.
    pub(super) moves: AtomicU32,
    /// Place of the address that was connected to last.
    pub(super) preferred: AtomicUsize,
    pub(super) attempts: Arc<Counts>,
    pub(super) reported: Reported,
    pub(super) incarnation: AtomicU32,
    pub(super) health: Mutex<Health>,
    /// Nothing at all speaks against it, as of nearly all engines nearly all the time: then nobody
    /// need look at its health.
    pub(super) is_plain: AtomicBool,
    pub(super) signs: Signs,
    /// It may know of sleep: most engines do not, and say so once.
    pub(super) may_sleep: AtomicBool,
    /// When its list of models was last doubted, in milliseconds of the process from 1 on; 0 is never.
    pub(super) doubted: AtomicU64,
    /// It does not belong to the fleet any more.
    pub(super) gone: AtomicBool,
}

impl State {
    pub(super) fn new(addresses: Vec<SocketAddr>) -> Self {
        Self {
            addresses: ArcSwap::from_pointee(addresses),
            moves: AtomicU32::new(0),
            preferred: AtomicUsize::new(0),
            attempts: Arc::default(),
            reported: Reported::default(),
            incarnation: AtomicU32::new(0),
            health: Mutex::default(),
            is_plain: AtomicBool::new(false),
            signs: Signs::default(),
            may_sleep: AtomicBool::new(true),
            doubted: AtomicU64::new(0),
            gone: AtomicBool::new(false),
        }
    }
}

/// The attempts of one engine.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) in_flight: AtomicUsize,
    pub(super) answering: AtomicUsize,
    pub(super) begun: AtomicU64,
}

/// Signs of life that requests brought, until a probe takes them away.
#[derive(Debug, Default)]
pub(super) struct Signs(AtomicU8);

impl Signs {
    /// It has answered something.
    pub(super) const ANSWERS: u8 = 1;
    /// It has sent a part of a good answer.
    pub(super) const WORKS: u8 = 2;

    pub(super) fn show(&self, signs: u8) {
        // Nearly always they are there, and need not be written.
        if self.0.load(Ordering::Relaxed) & signs != signs {
            self.0.fetch_or(signs, Ordering::Relaxed);
        }
    }

    /// Takes a sign away; whether it was there.
    pub(super) fn take(&self, sign: u8) -> bool {
        self.0.fetch_and(!sign, Ordering::Relaxed) & sign != 0
    }
}

/// The load an engine has told of beyond our own, in bits of `f32`: both, since a logic reads
/// them together.
#[derive(Debug, Default)]
pub(super) struct Reported(AtomicU64);

impl Reported {
    #[allow(clippy::cast_possible_truncation)] // gauges of a few digits
    pub(super) fn set(&self, foreign_and_waiting: f64, kv_cache: f64) {
        let bits = |value: f64| u64::from((value as f32).to_bits());
        self.0.store(
            bits(foreign_and_waiting) << 32 | bits(kv_cache),
            Ordering::Relaxed,
        );
    }

    pub(super) fn get(&self) -> (f64, f64) {
        #[allow(clippy::cast_possible_truncation)] // the halves
        let value = |bits: u64| f64::from(f32::from_bits(bits as u32));
        let both = self.0.load(Ordering::Relaxed);
        (value(both >> 32), value(both & 0xFFFF_FFFF))
    }
}
