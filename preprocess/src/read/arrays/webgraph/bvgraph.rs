//! Records of BVGraph (Boldi & Vigna, WWW 2004): the successors of one node, from a stream of bits.
//!
//! A stream has its first bit in the highest of the first byte. Natural numbers are coded as
//!
//! ```text
//! unary   x zeros, a one
//! gamma   unary length l of x + 1 without its highest bit, then these l bits
//! delta   l in gamma, then the l bits
//! zeta_k  unary h; then x + 1 - 2^(h k) in minimal binary, of h k + k - 1 or h k + k bits
//! ```
//! and the record of node u is, as far as it goes,
//!
//! ```text
//! outdegree d                                             nothing follows if it is 0
//! reference r                                             if the window is not 0; 0: none, else the list of u - r
//! count of blocks, lengths of blocks                      if r > 0: alternately copied and skipped; the first may be
//!                                                         0 and the others are stored minus 1; the rest after an
//!                                                         even count is copied to the end
//! count of intervals, {left, length}                      if successors are left and intervals are not off; the first
//!                                                         left is relative to u, with a sign, the others to the last
//!                                                         interval's end + 1; lengths less by the minimum
//! residuals                                               the rest of the d successors: the first relative to u, with a
//!                                                         sign, the others to the last + 1
//! ```
//! The successors are the three merged. Numbers with a sign are x / 2 for even x, -(x + 1) / 2 for
//! odd.
//!
//! The crate `webgraph` is not used because it trusts its input: it panics on a file that ends
//! early, and a damaged outdegree reserves the claimed memory. Here both are errors. It also takes
//! minutes to build.

use std::io::Read;

/// Why a record cannot be read.
pub type Damaged = &'static str;

const TOO_SHORT: Damaged = "it ends within a record";
const TOO_LARGE: Damaged = "a number of more than 63 bits";

/// How natural numbers are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Zeros and a one.
    Unary,
    /// Elias' gamma.
    Gamma,
    /// Elias' delta.
    Delta,
    /// Zeta with shrinking parameter k.
    Zeta(u32),
}

/// Layout of a graph's records, by its properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of nodes.
    pub num_nodes: u64,
    /// How far references reach, 0 for none.
    pub window: usize,
    /// Shortest interval, 0 for no intervals.
    pub min_interval: u64,
    /// Codes of outdegrees, references, counts of blocks, lengths of blocks, and residuals;
    /// intervals are in gamma.
    pub codes: [Code; 5],
}

/// Bits of a stream, from the first on.
pub struct Bits<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Next byte of the buffer.
    at: usize,
    /// The next bits, the first one highest; `held` of them count.
    next: u64,
    held: u32,
    /// Bits taken.
    position: u64,
}

impl<R: Read> Bits<R> {
    /// The bits of `reader`.
    pub fn new(reader: R) -> Self {
        Self { reader, buffer: Vec::new(), at: 0, next: 0, held: 0, position: 0 }
    }

    /// Bits taken so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Holds at least 57 bits, or all that are left.
    fn refill(&mut self) -> Result<(), Damaged> {
        if let Some(word) = self.buffer.get(self.at..).and_then(<[u8]>::first_chunk::<8>) {
            // The bits below `held` are the next ones of the stream, so they may be or-ed again.
            self.next |= u64::from_be_bytes(*word) >> self.held;
            let bytes = (64 - self.held) / 8;
            self.at += bytes as usize;
            self.held += 8 * bytes;
            return Ok(());
        }
        while self.held <= 56 {
            if self.at == self.buffer.len() {
                self.buffer.clear();
                self.at = 0;
                let read = (&mut self.reader).take(1 << 16).read_to_end(&mut self.buffer);
                if read.map_err(|_| "it cannot be read")? == 0 {
                    break;
                }
            }
            self.next |= u64::from(self.buffer[self.at]) << (56 - self.held);
            self.at += 1;
            self.held += 8;
        }
        Ok(())
    }

    fn take(&mut self, count: u32) {
        self.next = if count == 64 { 0 } else { self.next << count };
        self.held -= count;
        self.position += u64::from(count);
    }

    /// The next `count` bits, up to 63, as a number.
    fn bits(&mut self, count: u32) -> Result<u64, Damaged> {
        match count {
            0 => return Ok(0),
            1..57 => {}
            57..64 => return Ok(self.bits(32)? << (count - 32) | self.bits(count - 32)?),
            _ => return Err(TOO_LARGE),
        }
        if self.held < count {
            self.refill()?;
            if self.held < count {
                return Err(TOO_SHORT);
            }
        }
        let bits = self.next >> (64 - count);
        self.take(count);
        Ok(bits)
    }

    fn unary(&mut self) -> Result<u64, Damaged> {
        let mut zeros = 0;
        loop {
            let run = self.next.leading_zeros();
            if run < self.held {
                self.take(run + 1);
                return Ok(zeros + u64::from(run));
            }
            zeros += u64::from(self.held);
            self.take(self.held);
            self.next = 0;
            self.refill()?;
            if self.held == 0 {
                return Err(TOO_SHORT);
            }
        }
    }

    fn gamma(&mut self) -> Result<u64, Damaged> {
        let length = self.unary()?;
        self.binary(length)
    }

    /// The number x of which x + 1 has `length` bits after its highest bit; these bits follow.
    fn binary(&mut self, length: u64) -> Result<u64, Damaged> {
        if length > 62 {
            return Err(TOO_LARGE);
        }
        Ok((1 << length | self.bits(length as u32)?) - 1)
    }

    /// The next number.
    pub fn number(&mut self, code: Code) -> Result<u64, Damaged> {
        match code {
            Code::Unary => self.unary(),
            Code::Gamma => self.gamma(),
            Code::Delta => {
                let length = self.gamma()?;
                self.binary(length)
            }
            Code::Zeta(k) => {
                let low =
                    self.unary()?.checked_mul(u64::from(k)).filter(|low| low + u64::from(k) < 63);
                let low = low.ok_or(TOO_LARGE)? as u32;
                let number = self.bits(low + k - 1)?;
                let left = 1u64 << low;
                if number < left {
                    return Ok(number + left - 1);
                }
                Ok((number << 1 | self.bits(1)?) - 1)
            }
        }
    }

    /// Skips bits, up to `position` of the stream.
    pub fn skip_to(&mut self, position: u64) -> Result<(), Damaged> {
        let mut left = position.checked_sub(self.position).ok_or("an offset that goes back")?;
        while left > 0 {
            if self.held == 0 {
                // Whole bytes in the buffer are passed over at once.
                let bytes = (left / 8).min((self.buffer.len() - self.at) as u64);
                self.at += bytes as usize;
                self.position += 8 * bytes;
                left -= 8 * bytes;
                self.next = 0;
                self.refill()?;
                if self.held == 0 && left > 0 {
                    return Err(TOO_SHORT);
                }
            }
            let some = left.min(u64::from(self.held)) as u32;
            self.take(some);
            if self.held == 0 {
                self.next = 0;
            }
            left -= u64::from(some);
        }
        Ok(())
    }
}

/// Buffers for decoding records, reused.
#[derive(Default)]
pub struct Scratch {
    copied: Vec<u64>,
    intervals: Vec<(u64, u64)>,
    residuals: Vec<u64>,
}

impl Layout {
    /// The outdegree at the start of a record.
    pub fn outdegree(&self, bits: &mut Bits<impl Read>) -> Result<u64, Damaged> {
        let degree = bits.number(self.codes[0])?;
        if degree > self.num_nodes {
            Err("an outdegree above the number of nodes")
        } else {
            Ok(degree)
        }
    }

    /// The outdegree at the start of the record of `node`, and the distance in nodes to the list
    /// that it refers to, 0 for none.
    pub fn head(&self, node: u64, bits: &mut Bits<impl Read>) -> Result<(u64, u64), Damaged> {
        let degree = self.outdegree(bits)?;
        if degree == 0 || self.window == 0 {
            return Ok((degree, 0));
        }
        let back = bits.number(self.codes[1])?;
        if back > self.window as u64 || back > node {
            Err("a reference beyond the window")
        } else {
            Ok((degree, back))
        }
    }

    /// Reads the rest of the record of `node`, which has `degree` successors and `reference` as the
    /// list it refers to, and puts all successors into `successors`, ascending.
    pub fn rest(
        &self,
        node: u64,
        degree: u64,
        reference: Option<&[u64]>,
        bits: &mut Bits<impl Read>,
        scratch: &mut Scratch,
        successors: &mut Vec<u64>,
    ) -> Result<(), Damaged> {
        const TOO_MANY: Damaged = "more successors than the outdegree";
        let Scratch { copied, intervals, residuals } = scratch;
        copied.clear();
        intervals.clear();
        residuals.clear();
        if let Some(list) = reference {
            self.copy_blocks(list, bits, copied)?;
        }
        let mut left = degree.checked_sub(copied.len() as u64).ok_or(TOO_MANY)?;
        if left > 0 && self.min_interval > 0 {
            let mut last = 0;
            for at in 0..bits.gamma()? {
                let gap = bits.gamma()?;
                let from = if at == 0 { self.relative(node, gap)? } else { last + 1 + gap };
                let length = bits.gamma()? + self.min_interval;
                left = left.checked_sub(length).ok_or(TOO_MANY)?;
                last = self.within(from.saturating_add(length - 1))? + 1;
                intervals.push((from, last));
            }
        }
        let mut last = 0;
        for at in 0..left {
            let gap = bits.number(self.codes[4])?;
            last = self.within(if at == 0 { self.relative(node, gap)? } else { last + 1 + gap })?;
            residuals.push(last);
        }
        merge(copied, intervals, residuals, successors);
        Ok(())
    }

    /// Appends the copied blocks of `list` to `copied`.
    fn copy_blocks(
        &self,
        list: &[u64],
        bits: &mut Bits<impl Read>,
        copied: &mut Vec<u64>,
    ) -> Result<(), Damaged> {
        let blocks = bits.number(self.codes[2])?;
        let mut from = 0;
        for block in 0..blocks {
            let length = bits.number(self.codes[3])? + u64::from(block > 0);
            let end = from as u64 + length;
            let some = list
                .get(from..usize::try_from(end).unwrap_or(usize::MAX))
                .ok_or("blocks longer than their list")?;
            if block % 2 == 0 {
                copied.extend_from_slice(some);
            }
            from += some.len();
        }
        if blocks % 2 == 0 {
            copied.extend_from_slice(&list[from..]);
        }
        Ok(())
    }

    fn within(&self, successor: u64) -> Result<u64, Damaged> {
        if successor < self.num_nodes {
            Ok(successor)
        } else {
            Err("a successor above the number of nodes")
        }
    }

    /// The successor at the signed distance `code` from `node`.
    fn relative(&self, node: u64, code: u64) -> Result<u64, Damaged> {
        let distance = (code >> 1) as i64 ^ -((code & 1) as i64);
        node.checked_add_signed(distance).ok_or("a successor below 0")
    }
}

/// Merges ascending lists without common numbers, the intervals up to their ends.
fn merge(copied: &[u64], intervals: &[(u64, u64)], residuals: &[u64], into: &mut Vec<u64>) {
    let (mut copied, mut residuals) =
        (copied.iter().copied().peekable(), residuals.iter().copied().peekable());
    let mut below = |end: u64, into: &mut Vec<u64>| loop {
        let next = match (copied.peek(), residuals.peek()) {
            (Some(&one), Some(&other)) if one <= other => copied.next_if(|_| one < end),
            (_, Some(&other)) => residuals.next_if(|_| other < end),
            (Some(&one), None) => copied.next_if(|_| one < end),
            (None, None) => None,
        };
        match next {
            Some(next) => into.push(next),
            None => break,
        }
    };
    for &(from, end) in intervals {
        below(from, into);
        into.extend(from..end);
    }
    below(u64::MAX, into);
}

#[cfg(test)]
mod tests;
