//! A request as `key=value`, for people.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use crate::record::{Record, shortened};

/// Put together by hand, since it is made for every request: the standard formatter takes four times
/// as long.
pub(super) fn line(record: &Record<'_>) -> String {
    let mut line = String::with_capacity(512);
    field(&mut line, "id=", record.request_id);
    line.push_str(" client=");
    match record.client {
        Some(client) => push_address(&mut line, client),
        None => line.push('-'),
    }
    field(&mut line, " method=", &shortened(record.method));
    line.push_str(" path=");
    push_quoted(&mut line, &shortened(record.path));
    line.push_str(" route=");
    push_quoted(&mut line, record.route);
    line.push_str(" model=");
    push_quoted(&mut line, record.model);
    field(
        &mut line,
        " stream=",
        if record.stream { "true" } else { "false" },
    );
    line.push_str(" status=");
    push_number(&mut line, record.status.into());
    field(&mut line, " outcome=", record.outcome);
    field(&mut line, " reason=", record.reason);
    if let Some(stop) = record.stop {
        field(&mut line, " stop=", stop.label());
    }
    line.push_str(" attempts=");
    if record.attempts.is_empty() {
        line.push('-');
    }
    for (n, attempt) in record.attempts.iter().enumerate() {
        field(&mut line, if n == 0 { "" } else { "," }, &attempt.engine);
        field(&mut line, ":", attempt.outcome);
        if let Some(status) = attempt.status {
            line.push('/');
            push_number(&mut line, status.into());
        }
        line.push(':');
        push_millis(&mut line, attempt.took);
        line.push_str("ms");
    }
    line.push_str(" upload_ms=");
    push_or_dash(&mut line, record.upload, push_millis);
    line.push_str(" backoff_ms=");
    push_millis(&mut line, record.backoff);
    line.push_str(" hold_ms=");
    push_millis(&mut line, record.held);
    line.push_str(" ttft_ms=");
    push_or_dash(&mut line, record.first_byte, push_millis);
    line.push_str(" total_ms=");
    push_millis(&mut line, record.total);
    line.push_str(" bytes_in=");
    push_number(&mut line, record.bytes_in as u64);
    line.push_str(" bytes_out=");
    push_number(&mut line, record.bytes_out as u64);
    line.push_str(" prompt_tokens=");
    push_or_dash(&mut line, record.usage.prompt, push_number);
    line.push_str(" completion_tokens=");
    push_or_dash(&mut line, record.usage.completion, push_number);
    if let Some(trace) = record.trace {
        field(&mut line, " trace=", &trace.id().to_string());
    }
    line
}

fn field(line: &mut String, name: &str, value: &str) {
    line.push_str(name);
    line.push_str(value);
}

fn push_or_dash<T>(line: &mut String, value: Option<T>, push: impl FnOnce(&mut String, T)) {
    match value {
        Some(value) => push(line, value),
        None => line.push('-'),
    }
}

/// A value as it is where that is unmistakable, else as a JSON string.
fn push_quoted(line: &mut String, value: &str) {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    if !value.is_empty() && value.bytes().all(plain) {
        return line.push_str(value);
    }
    // JSON leaves these line ends as they are.
    let quoted = serde_json::Value::from(value).to_string();
    let quoted = quoted
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
        .replace('\u{85}', "\\u0085");
    line.push_str(&quoted);
}

fn push_address(line: &mut String, address: SocketAddr) {
    let SocketAddr::V4(address) = address else {
        let _ = write!(line, "{address}");
        return;
    };
    for (n, octet) in address.ip().octets().into_iter().enumerate() {
        if n > 0 {
            line.push('.');
        }
        push_number(line, octet.into());
    }
    line.push(':');
    push_number(line, address.port().into());
}

/// Milliseconds with one digit after the point.
fn push_millis(line: &mut String, time: Duration) {
    let tenths = time.as_secs() * 10_000 + u64::from((time.subsec_nanos() + 50_000) / 100_000);
    push_number(line, tenths / 10);
    line.push('.');
    push_number(line, tenths % 10);
}

fn push_number(line: &mut String, mut number: u64) {
    // As many digits as the largest has.
    let mut digits = [b'0'; 20];
    let mut length = 0;
    for digit in digits.iter_mut().rev() {
        #[allow(clippy::cast_possible_truncation)] // one digit
        let last = (number % 10) as u8;
        *digit = b'0' + last;
        length += 1;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    let digits = digits.get(digits.len() - length..).unwrap_or_default();
    line.push_str(str::from_utf8(digits).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::testing::{attempts, record};

    #[test]
    fn a_text_line_tells_the_whole_story() {
        assert_eq!(
            line(&record(&attempts())),
            "id=r-1 client=127.0.0.1:5000 method=POST path=/v1/completions route=/v1/completions \
             model=m stream=true status=200 outcome=answered reason=answered stop=answered \
             attempts=http://a:connect:0.3ms,http://b:answered/200:12.0ms upload_ms=0.7 \
             backoff_ms=0.0 hold_ms=1.5 ttft_ms=11.0 total_ms=13.0 bytes_in=20 bytes_out=300 prompt_tokens=5 \
             completion_tokens=7"
        );
    }

    #[test]
    fn numbers_and_addresses_are_written_as_ever() {
        let text = |push: &dyn Fn(&mut String)| {
            let mut line = String::new();
            push(&mut line);
            line
        };
        for number in [0, 9, 10, 65_535, 1_234_567_890, u64::MAX] {
            assert_eq!(text(&|line| push_number(line, number)), number.to_string());
        }
        for address in [
            "0.0.0.0:0",
            "255.1.20.3:65535",
            "[::1]:80",
            "[2001:db8::a]:8001",
        ] {
            let parsed = address.parse().unwrap();
            assert_eq!(text(&|line| push_address(line, parsed)), address);
        }
        for (micros, millis) in [
            (0, "0.0"),
            (49, "0.0"),
            (50, "0.1"),
            (999_950, "1000.0"),
            (61_000_040, "61000.0"),
        ] {
            let time = Duration::from_micros(micros);
            assert_eq!(text(&|line| push_millis(line, time)), millis);
        }
    }
}
