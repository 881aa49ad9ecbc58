//! Ids as the text of a JSON array, without white space.

/// The most bytes of an id and the comma behind it.
const LONGEST: usize = 11;

/// Two digits of each number below 100.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

/// `[1,22,333]` of 1, 22 and 333.
pub fn render(ids: &[u32]) -> Vec<u8> {
    // Most ids have five digits; what is longer grows the vector.
    let mut text = Vec::with_capacity(2 + ids.len() * 7);
    text.push(b'[');
    for &id in ids {
        let mut place = [b','; LONGEST];
        let start = write_digits(id, &mut place);
        text.extend_from_slice(&place[start..]);
    }
    if !ids.is_empty() {
        text.pop();
    }
    text.push(b']');
    text
}

/// Writes `number` before the last byte of `place`; returns where it starts.
#[inline]
fn write_digits(mut number: u32, place: &mut [u8; LONGEST]) -> usize {
    let mut start = LONGEST - 1;
    while number >= 100 {
        start -= 2;
        place[start..start + 2].copy_from_slice(&PAIRS[number as usize % 100]);
        number /= 100;
    }
    if number >= 10 {
        start -= 2;
        place[start..start + 2].copy_from_slice(&PAIRS[number as usize]);
    } else {
        start -= 1;
        place[start] = b'0' + number as u8;
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_digits_is_written_as_the_standard_library_does() {
        let mut numbers: Vec<u32> = (0..2000).chain([u32::MAX, u32::MAX - 1]).collect();
        for power in 0..10 {
            let ten = 10u32.pow(power);
            numbers.extend([ten - 1, ten, ten + 1, ten.saturating_mul(9)]);
        }
        for n_ids in [0, 1, 2, numbers.len()] {
            let ids = &numbers[numbers.len() - n_ids..];
            let expected: Vec<String> = ids.iter().map(u32::to_string).collect();
            assert_eq!(
                render(ids),
                format!("[{}]", expected.join(",")).into_bytes()
            );
        }
    }
}
