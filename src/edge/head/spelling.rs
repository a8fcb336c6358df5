//! Which bytes may stand where.

/// Whether this byte may not stand in a field's value.
pub(in crate::edge) fn is_forbidden_in_value(byte: u8) -> bool {
    (byte < b' ' && byte != b'\t') || byte == 0x7f
}

/// Whether this is a token: a method or a field's name.
pub(super) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && !has_any(text, |byte| !is_token_byte(byte))
}

/// Whether it may stand in one.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    TOKEN_BYTES.get(usize::from(byte)).is_some_and(|is| *is)
}

/// The bytes of a token, by RFC 9110 section 5.6.2.
#[allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "made by the compiler, for every byte there is"
)]
static TOKEN_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = matches!(
            byte as u8,
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z'
                | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+'
                | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        );
        byte += 1;
    }
    table
};

/// Whether any byte is one of these. All are looked at, which several at a time is quicker than to
/// stop at the first.
pub(super) fn has_any(bytes: &[u8], is_one: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(false, |any, byte| any | is_one(*byte))
}

/// Without the blanks around it.
pub(super) fn trim_spaces(value: &[u8]) -> &[u8] {
    let start = value.iter().take_while(|byte| **byte == b' ').count();
    let value = value.get(start..).unwrap_or_default();
    let end = value.iter().rev().take_while(|byte| **byte == b' ').count();
    value.get(..value.len() - end).unwrap_or_default()
}
