//! Writes the answers of our own.

use bytes::Bytes;
use http::header::{
    ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use pingora_core::Result;
use pingora_http::ResponseHeader;
use pingora_proxy::Session;

use super::context::{Context, End};
use super::{Router, headers};
use crate::api_error::ApiError;

/// A request id of 128 random bits.
pub(super) fn new_request_id(bits: u128) -> String {
    format!("{bits:032x}")
}

impl Router {
    /// Answers with an error of our own, and takes note of it.
    pub(super) async fn refuse(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        refusal: &ApiError,
    ) -> Result<()> {
        let mut fields = Vec::new();
        if let Some(allow) = refusal.allow() {
            fields.push((ALLOW, HeaderValue::from_static(allow)));
        }
        if let Some(seconds) = refusal.retry_after() {
            fields.push((RETRY_AFTER, HeaderValue::from(seconds)));
        }
        if refusal.status() == 401 {
            fields.push((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        }
        let answer = self
            .answer(session, ctx, refusal.status(), &fields, refusal.body())
            .await;
        ctx.end = Some(End::OwnError(refusal.clone()));
        answer
    }

    /// Answers with `body`, a JSON text, or nothing where it is empty.
    pub(super) async fn answer(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        status: u16,
        fields: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<()> {
        let mut head = ResponseHeader::build(status, Some(6))?;
        head.insert_header(CONTENT_LENGTH, body.len())?;
        if !body.is_empty() {
            head.insert_header(CONTENT_TYPE, "application/json")?;
        }
        head.insert_header(headers::REQUEST_ID, &ctx.request_id)?;
        if let (Some(_), Some(forward)) = (&ctx.plan.retry, &ctx.forward) {
            head.insert_header(headers::ATTEMPTS, forward.attempts.spent())?;
        }
        for (name, value) in fields {
            head.insert_header(name, value)?;
        }
        ctx.end = Some(End::Local);
        let session = &mut session.downstream_session;
        session.write_response_header(Box::new(head)).await?;
        session.write_response_body(body, true).await
    }
}
