//! The functions that construct pickled arrays.
//!
//! `torch._utils._rebuild_tensor_v2(storage, first, size, stride, requires_grad, hooks)` is a view
//! of a storage, which is given by `("storage", type, key, device, length)`. NumPy's
//! `_reconstruct(ndarray, (0,), b"b")` is an empty array, filled by the state `(1, shape, dtype,
//! column_major, bytes)`; `_frombuffer(bytes, dtype, shape, order)` is a complete one. `dtype("i8",
//! ...)` gets its byte order from the state `(3, "<", ...)`.

use super::machine::{Heap, Node, RawBytes};
use crate::read::arrays::numbers::Span;

/// Maximum number of dimensions of an array.
pub const MAX_DIMENSIONS: usize = 32;
/// Maximum length of the name of a dtype.
const MAX_DTYPE: usize = 8;

/// A known function or type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Global {
    Tensor,
    /// `torch.LongStorage` and similar, with NumPy's name of the element type.
    Storage(&'static str),
    OrderedDict,
    Reconstruct,
    FromBuffer,
    NdArray,
    Dtype,
    Encode,
    /// SciPy's `csr_matrix`, whose state is a dict of its arrays.
    Csr,
    DefaultDict,
    /// A class that occurs in PyG's `Data`: a dict of its attributes.
    Data,
    /// `list`, the default factory of a defaultdict.
    List,
}

/// An array: its shape, and the position of its bytes.
#[derive(Clone, Debug)]
pub struct Array {
    /// NumPy's name of the elements' type.
    pub descr: String,
    /// Length of each dimension.
    pub shape: Vec<u64>,
    /// Whether the first index varies fastest.
    pub column_major: bool,
    /// The elements.
    pub bytes: Bytes,
}

/// Position of an array's elements.
#[derive(Clone, Debug)]
pub enum Bytes {
    /// In the pickle.
    InPickle(Span),
    /// In the storage `key`, from element `first` on.
    Storage { key: u32, first: u64 },
}

impl Array {
    /// Number of elements. It fits in 64 bits, and so does the number of bytes.
    pub fn num_elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

impl Global {
    /// The global that `module` calls `name`.
    pub fn named(module: &str, name: &str) -> Result<Self, String> {
        const STORAGES: [(&str, &str); 9] = [
            ("LongStorage", "<i8"),
            ("IntStorage", "<i4"),
            ("ShortStorage", "<i2"),
            ("CharStorage", "|i1"),
            ("ByteStorage", "|u1"),
            ("BoolStorage", "|b1"),
            ("HalfStorage", "<f2"),
            ("FloatStorage", "<f4"),
            ("DoubleStorage", "<f8"),
        ];
        let storage = STORAGES.into_iter().find(|(known, _)| *known == name);
        match (module, name) {
            ("torch", _) if storage.is_some() => {
                Ok(Self::Storage(storage.map_or("", |(_, descr)| descr)))
            }
            ("torch._utils", "_rebuild_tensor_v2") => Ok(Self::Tensor),
            ("collections", "OrderedDict") => Ok(Self::OrderedDict),
            ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") => {
                Ok(Self::Reconstruct)
            }
            ("numpy.core.numeric" | "numpy._core.numeric", "_frombuffer") => Ok(Self::FromBuffer),
            ("numpy", "ndarray") => Ok(Self::NdArray),
            ("numpy", "dtype") => Ok(Self::Dtype),
            ("_codecs", "encode") => Ok(Self::Encode),
            ("scipy.sparse.csr" | "scipy.sparse._csr", "csr_matrix") => Ok(Self::Csr),
            (
                "torch_geometric.data.data" | "torch_geometric.data.storage",
                "Data" | "DataEdgeAttr" | "DataTensorAttr" | "GlobalStorage",
            ) => Ok(Self::Data),
            ("collections", "defaultdict") => Ok(Self::DefaultDict),
            ("__builtin__" | "builtins", "list") => Ok(Self::List),
            ("torch_geometric.data.hetero_data", _) => {
                Err("a HeteroData, of several types of vertices or edges: save \
                 data.to_homogeneous() to convert it as one type"
                    .into())
            }
            _ => Err(format!(
                "{}.{}, which this reader does not run: it knows only arrays of NumPy and torch, \
                 in dicts and lists",
                module.escape_debug(),
                name.escape_debug()
            )),
        }
    }
}

/// The value `at`, if it is an integer from 0.
fn unsigned(heap: &Heap, at: u32) -> Option<u64> {
    heap.int(at).and_then(|int| u64::try_from(int).ok())
}

/// The storage that the persistent id `id` refers to.
pub fn storage(heap: &Heap, id: u32) -> Result<Node, String> {
    let problem = || "a reference to something other than a storage of numbers".to_string();
    let [tag, kind, key, _device, len, ..] = heap.tuple(id).ok_or_else(problem)? else {
        return Err(problem());
    };
    let (Some("storage"), Node::Global(Global::Storage(descr)), Some(_)) =
        (heap.text(*tag), heap.node(*kind), heap.text(*key))
    else {
        return Err(problem());
    };
    let len = unsigned(heap, *len).ok_or_else(problem)?;
    Ok(Node::Storage { key: *key, descr, len })
}

/// Result of calling `function` with `arguments`.
pub fn call(heap: &Heap, function: u32, arguments: u32) -> Result<Node, String> {
    let Node::Global(function) = heap.node(function) else {
        return Err(format!("a call of {}", heap.node(function).what()));
    };
    let Some(arguments) = heap.tuple(arguments) else {
        return Err("a call without arguments".into());
    };
    match (function, arguments) {
        (Global::Tensor, [storage, first, size, stride, ..]) => {
            tensor(heap, [*storage, *first, *size, *stride])
        }
        (Global::OrderedDict, []) => Ok(Node::Dict(Vec::new())),
        (Global::DefaultDict, [class])
            if matches!(heap.node(*class), Node::Global(Global::List)) =>
        {
            Ok(Node::Dict(Vec::new()))
        }
        (Global::Reconstruct, [class, ..])
            if matches!(heap.node(*class), Node::Global(Global::NdArray)) =>
        {
            Ok(Node::Unfilled)
        }
        (Global::FromBuffer, [bytes, dtype, shape, order]) => {
            let column_major = heap.text(*order) == Some("F");
            in_pickle(heap, [*bytes, *dtype, *shape], column_major).map(Node::Array)
        }
        (Global::Dtype, [descr, ..]) => {
            // Escaped, so that messages keep to one line.
            let name = heap.text(*descr).filter(|name| name.len() <= MAX_DTYPE);
            Ok(Node::Dtype(
                name.ok_or("a dtype without a name of NumPy")?.escape_debug().to_string(),
            ))
        }
        (Global::Encode, [text, encoding]) => match (heap.node(*text), heap.text(*encoding)) {
            (Node::Raw(raw), Some("latin1" | "latin-1")) if raw.utf8 => {
                Ok(Node::Raw(RawBytes { utf8: false, latin1: true, text: None, ..raw.clone() }))
            }
            _ => Err("_codecs.encode of something else than text as latin1".into()),
        },
        (Global::NdArray | Global::Storage(_) | Global::Csr | Global::Data | Global::List, _) => {
            Err("a type that is called like a function".into())
        }
        (function, _) => {
            Err(format!("a call of {function:?} with other arguments than arrays have"))
        }
    }
}

/// An object of `class` before its state is set.
pub fn new(heap: &Heap, class: u32, arguments: u32) -> Result<Node, String> {
    match (heap.node(class), heap.tuple(arguments)) {
        (Node::Global(Global::Csr | Global::Data), Some([])) => Ok(Node::Unfilled),
        (class, _) => {
            Err(format!("an object of {}: expected a csr_matrix or a Data", class.what()))
        }
    }
}

/// Result of setting the `state` of `object`.
pub fn fill(heap: &Heap, object: u32, state: u32) -> Result<Node, String> {
    if let (Node::Unfilled, Node::Dict(pairs)) = (heap.node(object), heap.node(state)) {
        return Ok(Node::Dict(pairs.clone()));
    }
    let entries = heap.tuple(state);
    match (heap.node(object), entries) {
        (Node::Unfilled, Some([_, shape, dtype, order, bytes] | [shape, dtype, order, bytes])) => {
            let column_major = matches!(heap.node(*order), Node::Bool(true) | Node::Int(1));
            in_pickle(heap, [*bytes, *dtype, *shape], column_major).map(Node::Array)
        }
        (Node::Dtype(name), Some([_, order, ..])) => {
            let order = heap.text(*order).filter(|order| ["<", ">", "|", "="].contains(order));
            let order = order.ok_or("a dtype without a byte order")?;
            let name = name.trim_start_matches(['<', '>', '|', '=']);
            Ok(Node::Dtype(format!("{}{name}", if order == "=" { "<" } else { order })))
        }
        (object, _) => Err(format!("a state of {}, which is not supported", object.what())),
    }
}

/// Lengths of the dimensions. Fails if their product times 8 exceeds a possible number of bytes.
fn lengths(heap: &Heap, shape: u32) -> Result<Vec<u64>, String> {
    let lengths = heap.tuple(shape).filter(|shape| shape.len() <= MAX_DIMENSIONS);
    let lengths =
        lengths.and_then(|shape| shape.iter().map(|&length| unsigned(heap, length)).collect());
    let lengths: Vec<u64> = lengths.ok_or("an array without a shape")?;
    // A length of 0 must not hide an overflow: a file bounds every length.
    let product =
        lengths.iter().try_fold(8u64, |product, &length| product.checked_mul(length.max(1)));
    match product.is_some_and(|bytes| bytes < 1 << 60) {
        true => Ok(lengths),
        false => Err(format!("an array of shape {lengths:?}: damaged")),
    }
}

/// An array of NumPy, whose `bytes` are in the pickle.
fn in_pickle(
    heap: &Heap,
    [bytes, dtype, shape]: [u32; 3],
    column_major: bool,
) -> Result<Array, String> {
    let shape = lengths(heap, shape)?;
    let Node::Dtype(descr) = heap.node(dtype) else {
        return Err("an array without a dtype".into());
    };
    let raw = match heap.node(bytes) {
        Node::Raw(raw) if !raw.utf8 => raw,
        Node::List(_) => {
            return Err(format!("an array of Python objects ({descr}): expected numbers"));
        }
        other => return Err(format!("an array whose elements are {}", other.what())),
    };
    let held = raw.chars;
    let size = descr.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap_or(0);
    let elements: u64 = shape.iter().product();
    if elements.checked_mul(size) != Some(held) {
        return Err(format!(
            "an array of shape {shape:?} of {descr} with {held} bytes: truncated or damaged"
        ));
    }
    let column_major = column_major && shape.iter().filter(|&&length| length > 1).count() > 1;
    let span = Span { start: raw.start, latin1: raw.latin1 };
    Ok(Array { descr: whole_name(descr), shape, column_major, bytes: Bytes::InPickle(span) })
}

/// NumPy's name with its byte order, which is `|` for one-byte types.
fn whole_name(descr: &str) -> String {
    match descr {
        "b1" | "i1" | "u1" => format!("|{descr}"),
        _ if descr.starts_with(['<', '>', '|']) => descr.to_string(),
        _ => format!("<{descr}"),
    }
}

/// A tensor of torch: elements of a storage, without gaps.
fn tensor(heap: &Heap, [storage, first, size, stride]: [u32; 4]) -> Result<Node, String> {
    let Node::Storage { key, descr, len } = heap.node(storage) else {
        return Err("a tensor without a storage".into());
    };
    let first = unsigned(heap, first).ok_or("a tensor without an offset")?;
    let (shape, stride) = (lengths(heap, size)?, lengths(heap, stride)?);
    if shape.len() != stride.len() {
        return Err("a tensor whose strides do not match its shape".into());
    }
    let elements: u64 = shape.iter().product();
    if first.checked_add(elements).is_none_or(|end| end > *len) {
        return Err(format!(
            "a tensor of shape {shape:?} from element {first} of {len}: truncated or damaged"
        ));
    }
    // The stride of a dimension of length 1 has no meaning.
    let dense = |dimensions: &mut dyn Iterator<Item = (&u64, &u64)>| {
        let mut expected = 1;
        let mut of_elements = dimensions.filter(|(length, _)| **length > 1);
        of_elements.all(|(length, stride)| {
            let fits = *stride == expected;
            expected *= length;
            fits
        })
    };
    let row_major = elements == 0 || dense(&mut shape.iter().zip(&stride).rev());
    if !row_major && !dense(&mut shape.iter().zip(&stride)) {
        return Err(format!(
            "a tensor of shape {shape:?} with strides {stride:?}: expected .contiguous() ones"
        ));
    }
    let bytes = Bytes::Storage { key: *key, first };
    Ok(Node::Array(Array { descr: descr.to_string(), shape, column_major: !row_major, bytes }))
}
