//! The only unsafe code of this crate: calls of `shim.cpp` and of the `gemm` crate, and tensors' memory as slices.
//!
//! Why it is sound:
//!
//! * **Ownership across the boundary.** A `tch` tensor is a pointer to a C++ `at::Tensor` that it deletes when dropped.
//!   Arguments are lent for the length of a call. What C++ hands to [`call_backward`] was made with `new` for it and is
//!   wrapped at once; what [`call_backward`] returns was released by [`into_raw`] and C++ wraps it. A closure or buffer
//!   travels as one `Box` pointer with the function that frees it, and C++ calls that function exactly once, whatever
//!   fails (`Owned` in `shim.cpp`).
//! * **No unwinding.** Every C++ function catches all exceptions; every Rust function that C++ calls catches panics.
//!   Both become a line of text of at most [`ERROR_BYTES`] bytes.
//! * **Threads.** torch may run a backward function on another thread, so closures and buffers are `Send`; a node calls
//!   its closure under its own lock, never twice at a time.
//! * **Device slices.** [`device_values_of`] lends the GPU a tensor's memory under the same rule, and [`device_values_mut_of`] that of a
//!   tensor which its caller has made just now and nobody else knows, or of a parameter between two mini-batches, when no graph holds it. What is launched with them runs in the order of the
//!   calls on the stream that torch uses too, so the tensor may be dropped before it has run.
//! * **Slices.** [`values`] checks that a tensor is dense, on the host and f32 before it lends its memory. torch's tensors
//!   can share memory, and an in-place operation could change a slice that is being read; hence the rule, which the
//!   crate keeps: nothing computes in place on a tensor while it is lent, and [`values`] is not public. Memory is lent
//!   for writing as a [`Pages`], before any tensor exists on it, and by [`values_mut`] to the exchange between layers: rows that were
//!   [`extended`] and that no layer has seen yet, and a gradient that torch has given away.
//! * **Products.** [`gemm`] checks the three slices against the shapes before it passes pointers on.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null_mut};

use bytemuck::Pod;
use gsplit_kernels::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Gpu, MatrixView, make_room};
use half::{bf16, f16};
use tch::{Device, Kind, TchError, Tensor};

use super::{BackwardFn, Gradient, UpdateBy};
use crate::{Error, Result};

/// Room for a message, its closing zero included; `shim.cpp` says the same.
const ERROR_BYTES: usize = 512;
type Message = [c_char; ERROR_BYTES];

type Drop = unsafe extern "C" fn(*mut c_void);
type Backward = unsafe extern "C" fn(
    state: *mut c_void,
    gradient: *mut c_void,
    saved: *const *mut c_void,
    num_saved: usize,
    needed: *const bool,
    gradients: *mut *mut c_void,
    num_inputs: usize,
    error: *mut c_char,
) -> c_int;

unsafe extern "C" {
    fn gsplit_attach(
        inputs: *const *const c_void,
        num_inputs: usize,
        saved: *const *const c_void,
        num_saved: usize,
        output: *const c_void,
        state: *mut c_void,
        backward: Backward,
        drop: Drop,
        error: *mut c_char,
    ) -> c_int;
    fn gsplit_forget_gradient(leaf: *const c_void, error: *mut c_char) -> c_int;
    fn gsplit_backward(output: *const c_void, gradient: *const c_void, error: *mut c_char) -> c_int;
    fn gsplit_adam(
        decoupled: bool,
        count: usize,
        parameters: *const *const c_void,
        gradients: *const *const c_void,
        first: *const *const c_void,
        second: *const *const c_void,
        step: *const c_void,
        rate: f64,
        beta1: f64,
        beta2: f64,
        decay: f64,
        epsilon: f64,
        error: *mut c_char,
    ) -> c_int;
    fn gsplit_sgd(
        count: usize,
        parameters: *const *const c_void,
        gradients: *const *const c_void,
        momenta: *const *const c_void,
        count_momenta: usize,
        rate: f64,
        momentum: f64,
        decay: f64,
        nesterov: bool,
        error: *mut c_char,
    ) -> c_int;
    fn gsplit_adopt(
        data: *mut f32,
        room: i64,
        shape: *const i64,
        dims: usize,
        owner: *mut c_void,
        drop: Drop,
        tensor: *mut *mut c_void,
        error: *mut c_char,
    ) -> c_int;
    fn gsplit_adopt_like(
        data: *mut c_void,
        like: *const c_void,
        shape: *const i64,
        dims: usize,
        owner: *mut c_void,
        drop: Drop,
        tensor: *mut *mut c_void,
        error: *mut c_char,
    ) -> c_int;
    fn gsplit_extend(matrix: *const c_void, rows: i64, extended: *mut *mut c_void, error: *mut c_char) -> c_int;
    fn gsplit_give_back_memory(error: *mut c_char) -> c_int;
    fn gsplit_bytes_held(ordinal: c_int, bytes: *mut u64, error: *mut c_char) -> c_int;
    fn gsplit_before_torch_allocates(make_room: unsafe extern "C" fn(c_int), error: *mut c_char) -> c_int;
    fn gsplit_round_to_tf32(error: *mut c_char) -> c_int;
    fn gsplit_rounds_to_tf32() -> bool;
    fn gsplit_prefer_huge_pages(start: *mut c_void, bytes: usize);
}

/// Runs a function of the shim and makes its message an error.
fn checked(call: impl FnOnce(*mut c_char) -> c_int) -> Result<()> {
    let mut message: Message = [0; ERROR_BYTES];
    if call(message.as_mut_ptr()) == 0 {
        return Ok(());
    }
    // SAFETY: the shim closed its message with a zero inside the array.
    let text = unsafe { CStr::from_ptr(message.as_ptr()) };
    Err(TchError::Torch(text.to_string_lossy().into_owned()).into())
}

fn pointers(tensors: &[&Tensor]) -> Vec<*const c_void> {
    tensors.iter().map(|tensor| tensor.as_ptr().cast()).collect()
}

/// Gives the C++ tensor of `tensor` away.
fn into_raw(tensor: Tensor) -> *mut c_void {
    std::mem::ManuallyDrop::new(tensor).as_mut_ptr().cast()
}

/// Makes `output` depend on `inputs` through `backward`. See [`super::attach`].
pub fn attach(inputs: &[&Tensor], saved: &[&Tensor], output: &Tensor, backward: Box<BackwardFn>) -> Result<()> {
    let (inputs, saved) = (pointers(inputs), pointers(saved));
    let state: *mut Box<BackwardFn> = Box::into_raw(Box::new(backward));
    // SAFETY: all tensors outlive the call; `state` is given away with the two functions that know its type.
    checked(|error| unsafe {
        gsplit_attach(
            inputs.as_ptr(),
            inputs.len(),
            saved.as_ptr(),
            saved.len(),
            output.as_ptr().cast(),
            state.cast(),
            call_backward,
            free::<Box<BackwardFn>>,
            error,
        )
    })
}

/// Runs torch's backward pass from `output`, whose gradient is `gradient`.
pub fn backward(output: &Tensor, gradient: &Tensor) -> Result<()> {
    // SAFETY: both tensors outlive the call.
    checked(|error| unsafe { gsplit_backward(output.as_ptr().cast(), gradient.as_ptr().cast(), error) })
}

/// Updates `parameters` as `by` does.
///
/// # Panics
/// Unless there are as many gradients and moments as parameters.
pub fn update(parameters: &[&Tensor], gradients: &[&Tensor], by: &UpdateBy<'_>) -> Result<()> {
    let count = parameters.len();
    let same = |tensors: &[&Tensor]| {
        assert_eq!(tensors.len(), count, "a tensor for each parameter");
        pointers(tensors)
    };
    let (parameters, gradients) = (pointers(parameters), same(gradients));
    let (w, g) = (parameters.as_ptr(), gradients.as_ptr());
    match *by {
        UpdateBy::Adam { decoupled, moments: [first, second], step, rate, betas: [beta1, beta2], decay, epsilon } => {
            let (first, second, step) = (same(first), same(second), step.as_ptr().cast());
            let (m, v) = (first.as_ptr(), second.as_ptr());
            // SAFETY: all tensors outlive the call, and each list has `count` of them.
            checked(|error| unsafe {
                gsplit_adam(decoupled, count, w, g, m, v, step, rate, beta1, beta2, decay, epsilon, error)
            })
        }
        UpdateBy::Sgd { momenta, rate, momentum, decay, nesterov } => {
            let momenta = momenta.map(same).unwrap_or_default();
            let (m, count_momenta) = (momenta.as_ptr(), momenta.len());
            // SAFETY: all tensors outlive the call, and each list has `count` of them, the momenta perhaps none.
            checked(|error| unsafe {
                gsplit_sgd(count, w, g, m, count_momenta, rate, momentum, decay, nesterov, error)
            })
        }
    }
}

/// Gives the memory that torch keeps for later on GPUs back to them. An error without a GPU that torch has used.
pub fn give_back_memory() -> Result<()> {
    // SAFETY: touches what nobody uses.
    checked(|error| unsafe { gsplit_give_back_memory(error) })
}

/// Bytes of the memory of `device`, a GPU, that torch's allocator holds, in use or for later. torch's CUDA part is loaded.
pub fn bytes_held(device: Device) -> Result<u64> {
    let (Device::Cuda(ordinal), mut bytes) = (device, 0) else { return Ok(0) };
    // SAFETY: the number is written.
    checked(|error| unsafe { gsplit_bytes_held(ordinal as c_int, &mut bytes, error) })?;
    Ok(bytes)
}

/// Lets torch take the memory that kernels keep for later on a GPU: it calls [`make_room`] before it asks the driver for more. torch's
/// CUDA part is loaded.
pub fn share_memory() -> Result<()> {
    unsafe extern "C" fn called(ordinal: c_int) {
        // Without room torch says that it is out of memory.
        let _ = catch_unwind(|| make_room(ordinal.unsigned_abs() as usize));
    }
    // SAFETY: torch calls the function with the number of a GPU.
    checked(|error| unsafe { gsplit_before_torch_allocates(called, error) })
}

/// Lets products of f32 factors on GPUs round them to TF32 from now on, in all of the process.
pub fn round_to_tf32() -> Result<()> {
    // SAFETY: torch keeps a flag.
    checked(|error| unsafe { gsplit_round_to_tf32(error) })
}

/// Whether they may: by [`round_to_tf32`], or as the process or `TORCH_ALLOW_TF32_CUBLAS_OVERRIDE` has set torch.
pub fn rounds_to_tf32() -> bool {
    // SAFETY: as above.
    unsafe { gsplit_rounds_to_tf32() }
}

/// Leaves `leaf` without a gradient.
pub fn forget_gradient(leaf: &Tensor) -> Result<()> {
    // SAFETY: the tensor outlives the call.
    checked(|error| unsafe { gsplit_forget_gradient(leaf.as_ptr().cast(), error) })
}

/// Drops a boxed `T`; one that panics while it is dropped is left where it is.
///
/// # Safety
/// `pointer` is from `Box::<T>::into_raw` and not used afterwards.
unsafe extern "C" fn free<T>(pointer: *mut c_void) {
    // SAFETY: as the caller promises.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(pointer.cast::<T>()) })));
}

/// Runs a closure for `RustNode::apply`.
///
/// # Safety
/// As the shim calls it: `state` is what [`attach`] gave away; `gradient` and `saved` are owned tensors; `needed` and
/// `gradients` have `num_inputs` places; `error` has [`ERROR_BYTES`].
unsafe extern "C" fn call_backward(
    state: *mut c_void,
    gradient: *mut c_void,
    saved: *const *mut c_void,
    num_saved: usize,
    needed: *const bool,
    gradients: *mut *mut c_void,
    num_inputs: usize,
    error: *mut c_char,
) -> c_int {
    // SAFETY: as the caller promises; zero lengths come with pointers that may be null.
    let (closure, gradient, saved, needed) = unsafe {
        let owned = |tensor: *mut c_void| Tensor::from_ptr(tensor.cast());
        let saved: Vec<Tensor> = (0..num_saved).map(|i| owned(*saved.add(i))).collect();
        let needed: Vec<bool> = (0..num_inputs).map(|i| *needed.add(i)).collect();
        (&*state.cast::<Box<BackwardFn>>(), owned(gradient), saved, needed)
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let found = closure(Gradient { output: gradient, saved, needed })?;
        match found.len() == num_inputs {
            true => Ok(found),
            false => Err(Error::Option(format!("backward returned {} gradients for {num_inputs} inputs", found.len()))),
        }
    }));
    let text = match outcome {
        Ok(Ok(found)) => {
            for (i, tensor) in found.into_iter().enumerate() {
                // SAFETY: `gradients` has a place for every input, and their number was checked.
                unsafe { *gradients.add(i) = tensor.map_or(null_mut(), into_raw) };
            }
            return 0;
        }
        Ok(Err(problem)) => problem.to_string(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            let text = format!("backward panicked: {}", text.unwrap_or("no message"));
            // What was thrown may panic in its own drop.
            std::mem::forget(panic);
            text
        }
    };
    for (i, &byte) in text.as_bytes().iter().take(ERROR_BYTES - 1).chain(&[0]).enumerate() {
        // SAFETY: at most ERROR_BYTES bytes are written.
        unsafe { *error.add(i) = byte as c_char };
    }
    1
}

/// The values of a dense f32 tensor on the host, row after row, where they lie.
pub fn values(tensor: &Tensor) -> Result<&[f32]> {
    values_of(tensor)
}

/// The values of a dense tensor of `T` on the host, row after row, where they lie.
pub fn values_of<T: TensorValue>(tensor: &Tensor) -> Result<&[T]> {
    let fits = tensor.kind() == T::KIND && tensor.device() == Device::Cpu && tensor.is_contiguous();
    if !fits || tensor.is_sparse() {
        let found = format!("expected a dense tensor of {:?} on the host, got {tensor:?}", T::KIND);
        return Err(Error::Torch(TchError::Kind(found)));
    }
    if tensor.numel() == 0 {
        return Ok(&[]);
    }
    // SAFETY: a contiguous tensor has numel() values from data_ptr() on, which live as long as the tensor; nothing
    // writes to them meanwhile (module doc).
    Ok(unsafe { std::slice::from_raw_parts(tensor.data_ptr() as *const T, tensor.numel()) })
}

/// The values of a dense f32 tensor on the host, to be written: of one that its caller alone reads and writes meanwhile.
pub fn values_mut(tensor: &mut Tensor) -> Result<&mut [f32]> {
    let (start, len) = (values(tensor)?.as_ptr(), tensor.numel());
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as in `values`; nobody else uses the memory meanwhile (module doc).
    Ok(unsafe { std::slice::from_raw_parts_mut(start.cast_mut(), len) })
}

/// A type of values that both torch and the kernels know.
pub trait TensorValue: Pod {
    /// Torch's name of the type.
    const KIND: Kind;
}

impl TensorValue for f32 {
    const KIND: Kind = Kind::Float;
}

impl TensorValue for bf16 {
    const KIND: Kind = Kind::BFloat16;
}

impl TensorValue for f16 {
    const KIND: Kind = Kind::Half;
}

impl TensorValue for f64 {
    const KIND: Kind = Kind::Double;
}

impl TensorValue for i32 {
    const KIND: Kind = Kind::Int;
}

impl TensorValue for u8 {
    const KIND: Kind = Kind::Uint8;
}

/// The values of a dense f32 tensor at a place of GPU memory.
pub fn device_values<'a>(device: Device, tensor: &'a Tensor) -> Result<DeviceSlice<'a, f32>> {
    device_values_of(device, tensor)
}

/// The values of a dense f32 tensor at a place of GPU memory, to be written. Nobody else reads or writes them meanwhile.
pub fn device_values_mut<'a>(device: Device, tensor: &'a mut Tensor) -> Result<DeviceSliceMut<'a, f32>> {
    device_values_mut_of(device, tensor)
}

/// The values of a dense tensor of `T` at a place of GPU memory.
pub fn device_values_of<'a, T: TensorValue>(device: Device, tensor: &'a Tensor) -> Result<DeviceSlice<'a, T>> {
    let (address, len) = device_memory::<T>(device, tensor)?;
    // SAFETY: a contiguous tensor has numel() values from data_ptr() on, where its device reaches them, which live as long as
    // the tensor; nothing writes to them meanwhile (module doc).
    Ok(unsafe { DeviceSlice::from_raw(address, len) })
}

/// As [`device_values_of`], to be written. Nobody else reads or writes them meanwhile.
pub fn device_values_mut_of<'a, T: TensorValue>(
    device: Device,
    tensor: &'a mut Tensor,
) -> Result<DeviceSliceMut<'a, T>> {
    let (address, len) = device_memory::<T>(device, tensor)?;
    // SAFETY: as above; nobody else uses the tensor meanwhile (module doc).
    Ok(unsafe { DeviceSliceMut::from_raw(address, len) })
}

/// A copy of `tensor`, which is on the host, on `gpu`, which torch calls `device`; without history. Waits for nothing, up to 2 MiB.
pub fn upload(gpu: &Gpu, device: Device, tensor: &Tensor) -> Result<Tensor> {
    let host = tensor.detach().contiguous();
    if host.device() != Device::Cpu || host.is_sparse() {
        return Err(Error::Torch(TchError::Kind(format!("expected a dense tensor on the host, got {host:?}"))));
    }
    let made = Tensor::f_empty(host.size(), (host.kind(), device))?;
    let bytes = host.numel() * host.kind().elt_size_in_bytes();
    if bytes > 0 {
        // SAFETY: both are contiguous and have as many bytes from data_ptr() on; nobody else knows the one that is written.
        let (from, mut to) = unsafe {
            let from = std::slice::from_raw_parts(host.data_ptr().cast::<u8>(), bytes);
            (from, DeviceSliceMut::<u8>::from_raw(made.data_ptr() as u64, bytes))
        };
        to.upload(gpu, from)?;
    }
    Ok(made)
}

fn device_memory<T: TensorValue>(device: Device, tensor: &Tensor) -> Result<(u64, usize)> {
    let fits = tensor.kind() == T::KIND && tensor.device() == device && tensor.is_contiguous();
    if !fits || tensor.is_sparse() {
        let found = format!("expected a dense tensor of {:?} on {device:?}, got {tensor:?}", T::KIND);
        return Err(Error::Torch(TchError::Kind(found)));
    }
    let len = tensor.numel();
    Ok((if len == 0 { 0 } else { tensor.data_ptr() as u64 }, len))
}

/// Zeroed f32 memory on cache lines and, from a few MiB on, on huge pages where the kernel has them.
pub struct Pages {
    start: NonNull<f32>,
    layout: Layout,
}

// SAFETY: it owns its memory, like a `Vec<f32>`.
unsafe impl Send for Pages {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Pages {}

impl Pages {
    /// A huge page on x86-64.
    const HUGE_BYTES: usize = 2 << 20;

    /// `len` zeros.
    pub fn zeroed(len: usize) -> Result<Self> {
        let refused = || Error::Option(format!("{len} values of f32 are more than there is memory for"));
        let bytes = len.max(1).checked_mul(size_of::<f32>()).ok_or_else(refused)?;
        let align = if bytes >= 2 * Self::HUGE_BYTES { Self::HUGE_BYTES } else { 64 };
        let layout = Layout::from_size_align(bytes, align).map_err(|_| refused())?;
        // SAFETY: the layout is not empty; the memory is written before anything reads it.
        unsafe {
            let start = alloc(layout);
            if start.is_null() {
                handle_alloc_error(layout);
            }
            if align == Self::HUGE_BYTES {
                gsplit_prefer_huge_pages(start.cast(), bytes);
            }
            start.write_bytes(0, bytes);
            Ok(Self { start: NonNull::new_unchecked(start.cast()), layout })
        }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.layout.size() / size_of::<f32>()
    }

    /// The values.
    pub fn as_slice(&self) -> &[f32] {
        // SAFETY: len() initialised values, borrowed with self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len()) }
    }

    /// The values.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: as above, exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len()) }
    }
}

impl std::ops::Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr().cast(), self.layout) };
    }
}

/// A tensor of `shape` on the first values of `owner`'s memory; `owner` is dropped with the tensor's storage. What is behind these
/// values is room for [`extended`].
pub fn adopt<T: AsMut<[f32]> + Send + 'static>(owner: T, shape: &[i64]) -> Result<Tensor> {
    let mut owner = Box::new(owner);
    let (values, room) = (owner.as_mut().as_mut().as_mut_ptr(), owner.as_mut().as_mut().len());
    let needed = shape.iter().try_fold(1usize, |product, &dim| product.checked_mul(usize::try_from(dim).ok()?));
    if needed.is_none_or(|needed| needed > room) {
        return Err(Error::Torch(TchError::Shape(format!("a tensor of shape {shape:?} on {room} values"))));
    }
    let mut tensor = null_mut();
    let owner = Box::into_raw(owner).cast();
    // SAFETY: the memory holds the shape and, on the heap of `owner`, stays where it is until C++ frees it.
    checked(|error| unsafe {
        gsplit_adopt(values, room as i64, shape.as_ptr(), shape.len(), owner, free::<T>, &mut tensor, error)
    })?;
    // SAFETY: made with `new` by the shim, for us.
    Ok(unsafe { Tensor::from_ptr(tensor.cast()) })
}

/// A tensor of `shape` on the memory of `owner`, which is on the GPU that torch calls `device`, or on the host where that is emulated.
/// `owner` is dropped with the tensor's storage.
pub fn adopt_on_device<T: TensorValue + Send>(device: Device, owner: DeviceBuffer<T>, shape: &[i64]) -> Result<Tensor> {
    let needed = shape.iter().try_fold(1usize, |product, &dim| product.checked_mul(usize::try_from(dim).ok()?));
    if needed != Some(owner.len()) {
        return Err(Error::Torch(TchError::Shape(format!("a tensor of shape {shape:?} on {} values", owner.len()))));
    }
    let like = Tensor::f_empty([0], (T::KIND, device))?;
    let (address, mut tensor) = (owner.slice().address() as *mut c_void, null_mut());
    let owner = Box::into_raw(Box::new(owner)).cast();
    // SAFETY: the memory holds the shape and stays where it is until C++ drops `owner`; what is launched on it runs in the order of the
    // calls on the stream that frees it.
    checked(|error| unsafe {
        let (like, shape, dims) = (like.as_ptr().cast(), shape.as_ptr(), shape.len());
        gsplit_adopt_like(address, like, shape, dims, owner, free::<DeviceBuffer<T>>, &mut tensor, error)
    })?;
    // SAFETY: made with `new` by the shim, for us.
    Ok(unsafe { Tensor::from_ptr(tensor.cast()) })
}

/// A matrix of `rows` rows that starts with those of `matrix`, where these are all that was adopted ([`adopt`]) and have room behind
/// them. The rows behind hold anything; a matrix is extended once.
pub fn extended(matrix: &Tensor, rows: usize) -> Result<Option<Tensor>> {
    let mut tensor = null_mut();
    // SAFETY: the tensor outlives the call.
    checked(|error| unsafe { gsplit_extend(matrix.as_ptr().cast(), rows as i64, &mut tensor, error) })?;
    // SAFETY: null, or made with `new` by the shim, for us.
    Ok((!tensor.is_null()).then(|| unsafe { Tensor::from_ptr(tensor.cast()) }))
}

/// `out = a × b`, or `out += a × b` with `add`, by the calling thread alone. `out` is stored row after row,
/// `a.rows × b.columns`.
///
/// # Panics
/// If the shapes do not fit together or a matrix does not fit in its slice.
pub fn gemm(out: &mut [f32], add: bool, a: MatrixView<'_>, b: MatrixView<'_>) {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    assert!(b.rows == k && out.len() == m * n, "shapes of a product");
    assert!(a.fits() && b.fits(), "a matrix outside its slice");
    if k == 0 {
        // The crate leaves the result as it is.
        if !add {
            out.fill(0.0);
        }
        return;
    }
    // SAFETY: all elements were checked to lie in their slices; `out` is borrowed exclusively. Strides of a slice's
    // elements fit an isize, and the product of no matrix that is empty reads anything.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            n as isize,
            add,
            a.values.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.values.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
