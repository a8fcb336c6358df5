//! Carries out one inference request: admission, waiting, tokens, and the fault it was dealt.
//!
//! Given: the request, read and accepted, and its plan. Left to others: what happens to whom
//! (`plan`), the bytes (`answer`, `reply`).

use std::sync::Arc;

use tokio::time::Instant;

use super::answer::{self, Answer};
use super::ask::{Ask, Kind};
use super::behaviour::Behaviour;
use super::connection::{Connection, Gone};
use super::engine::{Engine, json_text};
use super::fault::{Break, Fault, Point};
use super::ledger::{Ending, Line};
use super::metrics::Finished;
use super::plan::{self, Plan};
use super::reply::{self, Reply};
use super::slots::{Admission, Slot, Ticket};

/// How much of a stream is gathered before it is sent when nothing is waited for.
const BATCH: usize = 32 << 10;

/// One request being carried out.
#[derive(Debug)]
pub(super) struct Generation<'a> {
    pub(super) engine: &'a Engine,
    pub(super) connection: &'a mut Connection,
    pub(super) ask: Ask<'a>,
    /// The model's name as JSON text without quotes.
    pub(super) model: Arc<str>,
    pub(super) request_id: Option<&'a str>,
    pub(super) line: Line,
    pub(super) close: bool,
}

/// Where an admitted request is.
#[derive(Debug)]
enum Place {
    Running(Slot),
    Waiting(Ticket),
}

// === impl Generation ===

impl Generation<'_> {
    /// Answers the request. `Err` when the client left.
    pub(super) async fn run(mut self) -> Result<Ending, Gone> {
        let (plan, behaviour) = self.engine.plan();
        match plan.fault {
            Some(Fault::Status(status)) => {
                self.note(plan.fault);
                return self.refuse(Reply::trouble(status), &behaviour).await;
            }
            Some(Fault::Break(Break::Reset, Point::BeforeHead)) => {
                self.note(plan.fault);
                return Ok(Ending::Reset);
            }
            Some(Fault::Break(Break::Close, Point::BeforeHead)) => {
                self.note(plan.fault);
                return Ok(Ending::Closed);
            }
            _ => {}
        }
        let arrived = Instant::now();
        let place = match self.engine.slots.admit() {
            Admission::Full => {
                self.engine.metrics.reject();
                return self.refuse(Reply::trouble(503), &behaviour).await;
            }
            Admission::Running(slot) => Place::Running(slot),
            Admission::Waiting(ticket) => Place::Waiting(ticket),
        };
        // Only now: a request the engine turned away did not meet its fault.
        self.note(plan.fault);
        if plan.fault == Some(Fault::Break(Break::Stall, Point::BeforeHead)) {
            return self.fall_silent(place).await;
        }
        let answer = self.answer(&plan);
        if self.ask.stream {
            reply::write_stream_head(self.connection, self.close);
            self.engine.ledger.head(self.line, 200);
            let at_once = matches!(place, Place::Running(_)) && plan.pace.is_instant();
            if !at_once || plan.fault.is_some() {
                self.connection.flush().await?;
            }
        }
        if plan.fault == Some(Fault::Hang) {
            return self.fall_silent(place).await;
        }
        let slot = match place {
            Place::Running(slot) => Some(slot),
            Place::Waiting(ticket) => self.connection.until(ticket.turn()).await?,
        };
        let started = Instant::now();
        let ending = if self.ask.stream {
            self.stream(&answer, &plan, started).await?
        } else {
            self.whole(&answer, &plan, started).await?
        };
        drop(slot);
        if ending == Ending::Complete {
            self.engine.metrics.finish(Finished {
                reason: answer.finish(),
                prompt_tokens: self.ask.prompt_tokens,
                tokens: answer.tokens(),
                queued: started - arrived,
                ttft: (started - arrived) + plan.pace.ttft,
                gap: plan.pace.gap,
                e2e: arrived.elapsed(),
            });
        }
        Ok(ending)
    }

    fn note(&self, fault: Option<Fault>) {
        if let Some(fault) = fault {
            self.engine.ledger.fault(self.line, fault);
        }
    }

    fn answer(&mut self, plan: &Plan) -> Answer {
        let (created, _) = self.connection.date();
        let id = match self.request_id {
            Some(id) => json_text(id),
            None => format!("{:016x}", plan.id),
        };
        let length = match self.ask.kind {
            Kind::Embedding => (0, "stop"),
            _ => plan::length(plan.tokens, self.ask.max_tokens, self.ask.ignore_eos),
        };
        Answer::new(&self.ask, &id, &self.model, created, length)
    }

    async fn refuse(self, reply: Reply, behaviour: &Arc<Behaviour>) -> Result<Ending, Gone> {
        let reply = reply.retry_after(behaviour.retry_after.as_deref());
        self.engine.ledger.head(self.line, reply.status);
        reply.send(self.connection, self.close, false).await?;
        Ok(Ending::Complete)
    }

    /// Says nothing more until the client leaves; the place stays taken until then.
    async fn fall_silent(self, place: Place) -> Result<Ending, Gone> {
        self.engine.ledger.end(self.line, Ending::Silent);
        let _slot = match place {
            Place::Running(slot) => Some(slot),
            Place::Waiting(ticket) => self.connection.until(ticket.turn()).await?,
        };
        self.connection.until(std::future::pending()).await
    }

    async fn stream(
        &mut self,
        answer: &Answer,
        plan: &Plan,
        started: Instant,
    ) -> Result<Ending, Gone> {
        let (kind, cut) = match plan.fault {
            Some(Fault::Break(kind, Point::AfterTokens(tokens))) => (Some(kind), tokens),
            Some(Fault::Break(kind, _)) => (Some(kind), 0),
            _ => (None, u32::MAX),
        };
        let mut scratch = String::with_capacity(32);
        if cut > 0 {
            self.wait(started + plan.pace.ttft, plan.pace.ttft.is_zero())
                .await?;
            answer.write_opening(&mut self.connection.out);
        }
        for n in 0..answer.tokens().min(cut) {
            if n > 0 {
                self.wait(started + plan.pace.due(n), plan.pace.gap.is_zero())
                    .await?;
            }
            answer.write_token(&mut self.connection.out, &mut scratch, n);
        }
        let Some(kind) = kind else {
            answer.write_closing(&mut self.connection.out, self.ask.include_usage);
            self.connection.flush().await?;
            return Ok(Ending::Complete);
        };
        self.connection.flush().await?;
        match kind {
            Break::Reset => Ok(Ending::Reset),
            Break::Close => Ok(Ending::Closed),
            Break::Stall => {
                self.engine.ledger.end(self.line, Ending::Silent);
                self.connection.until(std::future::pending()).await
            }
            Break::Error => {
                answer::chunk(&mut self.connection.out, &[reply::ENGINE_DEAD_EVENT]);
                answer::write_done(&mut self.connection.out);
                self.connection.flush().await?;
                Ok(Ending::EngineError)
            }
        }
    }

    /// Sends what is gathered and waits until `due`. Without a wait, it only sends full batches.
    async fn wait(&mut self, due: Instant, at_once: bool) -> Result<(), Gone> {
        if at_once {
            if self.connection.out.len() >= BATCH {
                self.connection.flush().await?;
                if self.connection.client_left() {
                    return Err(Gone);
                }
                tokio::task::yield_now().await;
            }
            return Ok(());
        }
        // Tokens that are due already travel together: timers have a grain of a millisecond.
        if due <= Instant::now() && self.connection.out.len() < BATCH {
            return Ok(());
        }
        self.connection.flush().await?;
        self.connection.sleep_until(due).await
    }

    async fn whole(
        &mut self,
        answer: &Answer,
        plan: &Plan,
        started: Instant,
    ) -> Result<Ending, Gone> {
        let (kind, produced) = match plan.fault {
            Some(Fault::Break(kind, Point::AfterTokens(tokens))) => (Some(kind), tokens),
            Some(Fault::Break(kind, _)) => (Some(kind), 0),
            _ => (None, answer.tokens()),
        };
        let produced = produced.min(answer.tokens());
        if !plan.pace.is_instant() && (produced > 0 || kind.is_none()) {
            let due = plan.pace.due(produced.saturating_sub(1));
            self.connection.sleep_until(started + due).await?;
        }
        if kind == Some(Break::Error) {
            let reply = Reply::trouble(500);
            self.engine.ledger.head(self.line, 500);
            reply.send(self.connection, self.close, false).await?;
            return Ok(Ending::EngineError);
        }
        let reply = Reply::json(200, answer.body());
        self.engine.ledger.head(self.line, 200);
        let Some(kind) = kind else {
            reply.send(self.connection, self.close, false).await?;
            return Ok(Ending::Complete);
        };
        reply.write_head(self.connection, self.close);
        if produced > 0 {
            let half = reply.body.get(..reply.body.len() / 2).unwrap_or_default();
            self.connection.out.extend_from_slice(half);
        }
        self.connection.flush().await?;
        match kind {
            Break::Reset => Ok(Ending::Reset),
            Break::Stall => {
                self.engine.ledger.end(self.line, Ending::Silent);
                self.connection.until(std::future::pending()).await
            }
            Break::Close | Break::Error => Ok(Ending::Closed),
        }
    }
}
