//! Numbers and instants from their text, where the result is that of topics/records/numbers.py and topics/wire/timestamps.py beyond doubt.

/// Powers of ten that a float holds exactly.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];
const EXACT: u64 = 1 << 53;

/// An integer of 64 bits with sign.
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = sign(text);
    let mut found = 0i64;
    for digit in digits {
        // Downwards, as there is one more negative number.
        found = found.checked_mul(10)?.checked_sub(i64::from(digit.wrapping_sub(b'0')))?;
    }
    if negative {
        Some(found)
    } else {
        found.checked_neg()
    }
}

/// The float nearest to a decimal with a fraction. Both factors are exact and a division is rounded correctly, so every reader
/// that rounds correctly finds the same. None: the digits are too many for that.
pub fn decimal(text: &[u8]) -> Option<f64> {
    let (negative, digits) = sign(text);
    let point = digits.iter().position(|&byte| byte == b'.')?;
    let mut whole = 0u64;
    for digit in digits.iter().filter(|&&byte| byte != b'.') {
        whole = whole.checked_mul(10)?.checked_add(u64::from(digit.wrapping_sub(b'0')))?;
    }
    let places = digits.len() - point - 1;
    let found = (whole <= EXACT).then_some(whole as f64)? / TENS.get(places)?;
    Some(if negative { -found } else { found })
}

/// The integer that a float is, where a float tells it from its neighbours. None: it is none, or may have been another.
pub fn whole(number: f64) -> Option<i64> {
    (number.abs() < EXACT as f64 && number.fract() == 0.0).then_some(number as i64)
}

fn sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    }
}

/// Milliseconds since 1970 of an RFC 3339 text in UTC such as 2026-01-31T12:00:00.123Z; finer digits are cut off.
pub fn instant(text: &[u8]) -> Option<i64> {
    let (date, rest) = (text.get(..19)?, &text[19..]);
    let number = |start: usize, end: usize| -> Option<i64> {
        date[start..end]
            .iter()
            .try_fold(0, |found, digit| digit.is_ascii_digit().then(|| found * 10 + i64::from(digit - b'0')))
    };
    for (at, wanted) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
        if date[at] != wanted {
            return None;
        }
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1 || !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = ((days_before(year, month) + day - 1) * 24 + hour) * 3600 + minute * 60 + second;
    Some(seconds * 1000 + fraction(rest)?)
}

/// Milliseconds of what follows the seconds: up to 18 digits behind a point, and Z.
fn fraction(text: &[u8]) -> Option<i64> {
    let digits = match text {
        [b'Z'] => return Some(0),
        [b'.', digits @ .., b'Z'] => digits,
        _ => return None,
    };
    if !(1..=18).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some((0..3).fold(0, |found, at| found * 10 + digits.get(at).map_or(0, |digit| i64::from(digit - b'0'))))
}

/// Days from 1970-01-01 to the first day of a month; `year >= 1`.
fn days_before(year: i64, month: i64) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let past = year - 1;
    let days = past * 365 + past / 4 - past / 100 + past / 400 - 719_162;
    days + BEFORE[month as usize - 1] + i64::from(leap && month > 2)
}
