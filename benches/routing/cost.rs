//! What a pick costs.

use std::hint::black_box;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use vllm_pingora::retry::{Attempts, Failure, Outcome, Resend, RetryConfig, RetryValues, Standing};
use vllm_pingora::routing::{Ask, Blocks, Kind, Logic, Logics, Member};

use super::blocks::{Author, mixed, spell};
use super::fixed::Fixed;

use super::simulate::LOGICS;
use crate::fleet::{Router, by_default};

const SIZES: [usize; 3] = [2, 100, 1000];
/// Requests that run on each engine meanwhile.
const IN_FLIGHT: usize = 10;
/// Different requests, asked again and again.
const REQUESTS: usize = 256;
/// Blocks of 64 bytes that all prompts share, and of a whole prompt: 2 KiB and 8 KiB.
const SHARED: usize = 32;
const PROMPT: usize = 128;
/// A median of so many rounds, each of so much time.
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(20);

/// A request as the proxy has it before it asks.
struct Request {
    session: String,
    prompt: Vec<u8>,
}

/// Times all and prints the table.
pub fn cost() {
    println!(
        "## Nanoseconds per pick\n\n\
         {IN_FLIGHT} requests run on each engine; `prefixaware` hashes a prompt of 8 KiB, 2 KiB of \
         which are everybody's, and knows it already. Of 2 engines, one is excluded.\n\n\
         | logic | engines | pool | pool, two threads | logic alone | a tenth excluded: pool | \
         two threads | logic alone |\n|---|---|---|---|---|---|---|---|"
    );
    let requests = requests();
    for kind in LOGICS {
        for engines in SIZES {
            print!("| {} | {engines} |", kind.word());
            for excluded in [0, engines.div_ceil(10)] {
                let pool = Pooled::new(kind, engines, excluded, &requests);
                let one = time(&[0], |n| pool.place(&requests[n % REQUESTS], n));
                let two = time(&[0, REQUESTS / 2], |n| {
                    pool.place(&requests[n % REQUESTS], n);
                });
                let alone = Alone::new(kind, engines, excluded, &requests);
                let alone = time(&[0], |n| alone.pick(&requests[n % REQUESTS], n));
                print!(" {one:.0} | {two:.0} | {alone:.0} |");
            }
            println!();
        }
    }
}

/// The real pool, as the proxy calls it.
struct Pooled {
    kind: Kind,
    router: Router,
    attempts: Attempts,
    /// What runs on the engines.
    _placed: Vec<vllm_pingora::engines::Placed>,
}

impl Pooled {
    fn new(kind: Kind, engines: usize, excluded: usize, requests: &[Request]) -> Self {
        let router = Router::new(kind, engines);
        let fresh = Attempts::new(None, Resend::Always);
        let place = |n: usize| {
            let request = &requests[n % REQUESTS];
            // Each request is another session, so that these spread.
            let session = format!("{}-{n}", request.session);
            let blocks = request.blocks(kind);
            let ask = ask(&session, blocks.as_ref(), n);
            router.place(&fresh, &ask).1
        };
        let placed = (0..IN_FLIGHT * engines).map(place).collect();
        let values = RetryValues {
            max_retries: u64::from(u32::MAX),
            ..RetryValues::default()
        };
        let config = RetryConfig::try_new(values).expect("a policy");
        let mut attempts = Attempts::new(Some(&config), Resend::Always);
        // Spread over the list, as those that fail are.
        for n in 0..excluded {
            attempts.begin(router.ids()[n * engines / excluded]);
            attempts.after(Outcome::Failed(Failure::Connect), router.ids(), 0.5);
        }
        Self {
            kind,
            router,
            attempts,
            _placed: placed,
        }
    }

    fn place(&self, request: &Request, n: usize) {
        let blocks = request.blocks(self.kind);
        let ask = ask(&request.session, blocks.as_ref(), n);
        black_box(self.router.place(&self.attempts, &ask));
    }
}

/// The logic among candidates that are nothing but numbers.
struct Alone {
    kind: Kind,
    logic: Logic,
    among: Fixed,
}

impl Alone {
    fn new(kind: Kind, engines: usize, excluded: usize, requests: &[Request]) -> Self {
        let mut among = Fixed::new(engines, IN_FLIGHT);
        let names: Vec<_> = (0..engines)
            .map(|engine| format!("http://10.0.{}.{}:8000", engine / 250, engine % 250))
            .collect();
        let member = |(place, name)| Member {
            id: Fixed::id_of(place),
            name,
            weight: 1,
        };
        let members: Vec<_> = names
            .iter()
            .map(String::as_str)
            .enumerate()
            .map(member)
            .collect();
        let alone = |among| Self {
            kind,
            logic: Logic::new(&Logics::new(by_default(kind)), &members, None),
            among,
        };
        for n in 0..excluded {
            among.standings[n * engines / excluded] = Standing::Excluded;
        }
        let alone = alone(among);
        for (n, request) in requests.iter().enumerate() {
            alone.pick(request, n);
        }
        alone
    }

    fn pick(&self, request: &Request, n: usize) {
        let blocks = request.blocks(self.kind);
        let ask = ask(&request.session, blocks.as_ref(), n);
        black_box(self.logic.pick(&ask, &self.among));
    }
}

impl Request {
    fn blocks(&self, kind: Kind) -> Option<Blocks> {
        (kind == Kind::PrefixAware).then(|| Blocks::of("m", &self.prompt))
    }
}

fn requests() -> Vec<Request> {
    let mut shared = Vec::new();
    Author::new(0).write(&mut shared, SHARED);
    let request = |n: usize| {
        let mut chain = shared.clone();
        Author::new(1 + n as u64).write(&mut chain, PROMPT - SHARED);
        Request {
            session: format!("user-{n}@example.com"),
            prompt: spell(&chain),
        }
    };
    (0..REQUESTS).map(request).collect()
}

fn ask<'a>(session: &'a str, prompt: Option<&'a Blocks>, n: usize) -> Ask<'a> {
    Ask {
        session: Some(session),
        prompt,
        draw: mixed(n as u64),
        ..Ask::default()
    }
}

/// Nanoseconds of one call on each of the threads, which begin at these numbers.
fn time(threads: &[usize], call: impl Fn(usize) + Sync) -> f64 {
    let round = |from: usize| {
        let begun = ran();
        let mut calls = 0;
        while ran() < begun + ROUND {
            for _ in 0..64 {
                call(from + calls);
                calls += 1;
            }
        }
        ran().abs_diff(begun).as_nanos() as f64 / calls as f64
    };
    // The first one warms up.
    let mut rounds: Vec<_> = (0..=ROUNDS)
        .map(|_| side_by_side(threads, round))
        .skip(1)
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// The mean of what the threads say.
fn side_by_side(threads: &[usize], round: impl Fn(usize) -> f64 + Sync) -> f64 {
    std::thread::scope(|scope| {
        let round = &round;
        let threads: Vec<_> = threads
            .iter()
            .map(|from| scope.spawn(move || round(*from)))
            .collect();
        let count = threads.len() as f64;
        let times = threads.into_iter().map(|it| it.join().expect("no panic"));
        times.sum::<f64>() / count
    })
}

/// The time this thread has run: what others do on the machine in between does not count.
fn ran() -> Duration {
    let ran = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every thread has one");
    ran.into()
}
