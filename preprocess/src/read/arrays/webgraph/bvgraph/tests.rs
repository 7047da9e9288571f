use super::*;

/// Parses bits written as `0` and `1`; blanks are ignored.
fn bits(text: &str) -> Vec<u8> {
    let bits: Vec<u8> =
        text.bytes().filter(|byte| !byte.is_ascii_whitespace()).map(|byte| byte - b'0').collect();
    bits.chunks(8)
        .map(|byte| byte.iter().enumerate().map(|(at, bit)| bit << (7 - at)).sum())
        .collect()
}

#[test]
fn codes_of_the_paper() {
    // Table 1 of Boldi & Vigna, The WebGraph framework II, for 0 to 7 (they count from 1).
    let table: [(Code, [&str; 8]); 5] = [
        (Code::Unary, ["1", "01", "001", "0001", "00001", "000001", "0000001", "00000001"]),
        (Code::Gamma, ["1", "010", "011", "00100", "00101", "00110", "00111", "0001000"]),
        (Code::Delta, ["1", "0100", "0101", "01100", "01101", "01110", "01111", "00100000"]),
        (Code::Zeta(2), ["10", "110", "111", "01000", "01001", "01010", "01011", "011000"]),
        (Code::Zeta(3), ["100", "1010", "1011", "1100", "1101", "1110", "1111", "0100000"]),
    ];
    for (code, words) in table {
        let bytes = bits(&words.concat());
        let mut stream = Bits::new(&bytes[..]);
        for expected in 0..8 {
            assert_eq!(stream.number(code), Ok(expected), "{code:?}");
        }
        assert_eq!(stream.position(), words.concat().len() as u64);
    }
}

#[test]
fn streams_of_any_length() {
    // Gamma codes of 2^0 - 1, 2^1 - 1 ... up to the limit of 63 bits, over buffers' ends, then
    // skips to each.
    let mut text = String::new();
    let mut starts = Vec::new();
    for round in 0..3000u32 {
        let length = round % 31;
        starts.push((text.len() as u64, (1u64 << length) - 1));
        text += &format!("{}1{}", "0".repeat(length as usize), "0".repeat(length as usize));
    }
    let bytes = bits(&text);
    let mut stream = Bits::new(&bytes[..]);
    assert!(
        starts.iter().all(|&(start, number)| stream.position() == start
            && stream.number(Code::Gamma) == Ok(number))
    );
    let mut stream = Bits::new(&bytes[..]);
    for &(start, number) in starts.iter().filter(|(start, _)| start % 7 < 2) {
        stream.skip_to(start).unwrap();
        assert_eq!((stream.position(), stream.number(Code::Gamma)), (start, Ok(number)));
    }
    assert!(stream.skip_to(0).is_err());
    assert_eq!(stream.skip_to(text.len() as u64 + 64), Err(TOO_SHORT));
    for code in [Code::Unary, Code::Gamma, Code::Delta, Code::Zeta(3)] {
        assert!(Bits::new(&[0u8; 100][..]).number(code).is_err());
        assert!(Bits::new(&[][..]).number(code).is_err());
        assert!(Bits::new(&bits(&format!("{}1", "0".repeat(63)))[..]).number(Code::Gamma).is_err());
    }
}

#[test]
fn lists_are_merged() {
    let mut all = Vec::new();
    merge(&[1, 9, 20], &[(3, 6), (11, 13)], &[0, 7, 30], &mut all);
    assert_eq!(all, [0, 1, 3, 4, 5, 7, 9, 11, 12, 20, 30]);
}
