//! Text files: `stream` cuts a file, plain or compressed, into pieces of whole lines; `line` cuts
//! lines into fields; `sketch` detects the kind of a file by its first lines; a reader converts
//! each line to edges, by `field` (ids and numbers) and `value` (numbers of a column's type).

pub mod adjlist;
pub mod dimacs;
pub mod field;
pub mod line;
pub mod metis;
pub mod mtx;
pub mod na;
pub mod names;
pub mod sketch;
pub mod snap;
mod stream;
pub mod style;
pub mod value;

pub use stream::{
    BYTE_ORDER_MARK, TextPieces, TextStream, check_encoding, first_line, header_line,
    is_compressed, lines, listed_numbers, name_of, parse_pieces, read_pieces, some, uncompressed,
    words,
};
