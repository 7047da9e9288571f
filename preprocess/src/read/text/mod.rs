//! Files of text: `stream` cuts a file, plain or compressed, into pieces of whole lines; a reader makes edges of each line, by
//! `field` (ids and numbers) and `value` (numbers of a column's type).

pub mod field;
pub mod metis;
pub mod mtx;
pub mod snap;
mod stream;
pub mod value;

pub use stream::{TextPieces, TextStream, first_line, lines, name_of, read_pieces, some};
