//! The only unsafe code of this crate: calls of `shim.cpp` and of the `gemm` crate, and tensors'
//! memory as slices. It is one file, so that it can be audited as a whole.
//!
//! Why it is sound:
//!
//! * **Ownership across the boundary.** A `tch` tensor is a pointer to a C++ `at::Tensor` that it
//!   deletes when dropped. Arguments are lent for the duration of a call. The tensors that C++
//!   passes to [`call_backward`] were made with `new` for it and are wrapped at once; the tensors
//!   that it returns were released by [`into_raw`] and C++ wraps them. A closure or buffer travels
//!   as one `Box` pointer with the function that frees it, and C++ calls that function exactly
//!   once, whatever fails (`Owned` in `shim.cpp`).
//! * **No unwinding.** Every C++ function catches all exceptions; every Rust function that C++
//!   calls catches panics. Both become a line of text of at most [`ERROR_BYTES`] bytes.
//! * **Threads.** torch may run a backward function on another thread, so closures and buffers are
//!   `Send`; a node calls its closure under its own lock, never twice at a time.
//! * **Device slices.** [`device_values`] lends the GPU a tensor's memory under the same rule.
//!   [`device_values_mut`] lends a tensor that its caller has just made and has not shared, or a
//!   parameter between two mini-batches, when no graph holds it. Kernels run in call order on the
//!   stream that torch also uses, so a tensor may be dropped before they run.
//! * **Slices.** [`values`] checks that a tensor is dense, on the host and f32 before it lends its
//!   memory. torch's tensors can share memory, and an in-place operation could change a slice that
//!   is being read; hence the crate's rule: nothing computes in place on a tensor while it is lent,
//!   and [`values`] is not public. Memory is lent for writing as a [`Pages`], before any tensor
//!   exists on it, and by [`values_mut`] to the exchange between layers: rows that were
//!   [`extended`] and that no layer has seen yet, and a gradient that torch has given up.
//! * **Products.** [`gemm`] checks the three slices against the shapes before it passes pointers
//!   on.

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

/// Room for a message and its terminating zero; `shim.cpp` has the same constant.
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
    fn gsplit_backward(output: *const c_void, gradient: *const c_void, error: *mut c_char)
    -> c_int;
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
        data: *mut c_void,
        room: i64,
        like: *const c_void,
        shape: *const i64,
        dims: usize,
        owner: *mut c_void,
        drop: Drop,
        tensor: *mut *mut c_void,
        error: *mut c_char,
    ) -> c_int;
    fn gsplit_extend(
        matrix: *const c_void,
        rows: i64,
        extended: *mut *mut c_void,
        error: *mut c_char,
    ) -> c_int;
    fn gsplit_give_back_memory(error: *mut c_char) -> c_int;
    fn gsplit_bytes_held(ordinal: c_int, bytes: *mut u64, error: *mut c_char) -> c_int;
    fn gsplit_before_torch_allocates(
        make_room: unsafe extern "C" fn(c_int),
        error: *mut c_char,
    ) -> c_int;
    fn gsplit_round_to_tf32(error: *mut c_char) -> c_int;
    fn gsplit_rounds_to_tf32() -> bool;
    fn gsplit_prefer_huge_pages(start: *mut c_void, bytes: usize);
}

/// Runs a function of the shim and turns its message into an error.
fn checked(call: impl FnOnce(*mut c_char) -> c_int) -> Result<()> {
    let mut message: Message = [0; ERROR_BYTES];
    if call(message.as_mut_ptr()) == 0 {
        return Ok(());
    }
    // SAFETY: the shim terminated its message with a zero inside the array.
    let text = unsafe { CStr::from_ptr(message.as_ptr()) };
    Err(TchError::Torch(text.to_string_lossy().into_owned()).into())
}

fn pointers(tensors: &[&Tensor]) -> Vec<*const c_void> {
    tensors.iter().map(|tensor| tensor.as_ptr().cast()).collect()
}

/// Releases the C++ tensor of `tensor`; the caller owns it.
fn into_raw(tensor: Tensor) -> *mut c_void {
    std::mem::ManuallyDrop::new(tensor).as_mut_ptr().cast()
}

/// Returns `output` as a function of `inputs`.
///
/// `output` is a new tensor without history. `saved` may hold inputs, the output itself, and
/// others. If no gradients are recorded (under [`tch::no_grad`], or with no input that requires
/// them) nothing is kept. An error or a panic in `backward` becomes an error of the backward pass.
pub fn attach(
    inputs: &[&Tensor],
    saved: &[&Tensor],
    output: Tensor,
    backward: impl Fn(Gradient) -> Result<Vec<Option<Tensor>>> + Send + 'static,
) -> Result<Tensor> {
    let (inputs, saved) = (pointers(inputs), pointers(saved));
    let state: *mut Box<BackwardFn> = Box::into_raw(Box::new(Box::new(backward)));
    // SAFETY: all tensors outlive the call; `state` is given away with the two functions that know
    // its type.
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
    })?;
    Ok(output)
}

/// Runs torch's backward pass from `output`, whose gradient is `gradient`, and adds to the
/// gradients of the leaves. Fails with the message of the operator that failed, or if the
/// graph was used already.
pub fn backward(output: &Tensor, gradient: &Tensor) -> Result<()> {
    // SAFETY: both tensors outlive the call.
    checked(|error| unsafe {
        gsplit_backward(output.as_ptr().cast(), gradient.as_ptr().cast(), error)
    })
}

/// Updates `parameters` in place with one step of the optimizer `by`.
///
/// # Panics
/// If the numbers of gradients and moments differ from the number of parameters.
pub fn update(parameters: &[&Tensor], gradients: &[&Tensor], by: &UpdateBy<'_>) -> Result<()> {
    let count = parameters.len();
    let same = |tensors: &[&Tensor]| {
        assert_eq!(tensors.len(), count, "a tensor for each parameter");
        pointers(tensors)
    };
    let (parameters, gradients) = (pointers(parameters), same(gradients));
    let (w, g) = (parameters.as_ptr(), gradients.as_ptr());
    match *by {
        UpdateBy::Adam {
            decoupled,
            moments: [first, second],
            step,
            rate,
            betas: [beta1, beta2],
            decay,
            epsilon,
        } => {
            let (first, second, step) = (same(first), same(second), step.as_ptr().cast());
            let (m, v) = (first.as_ptr(), second.as_ptr());
            // SAFETY: all tensors outlive the call, and each list has `count` of them.
            checked(|error| unsafe {
                gsplit_adam(
                    decoupled, count, w, g, m, v, step, rate, beta1, beta2, decay, epsilon, error,
                )
            })
        }
        UpdateBy::Sgd { momenta, rate, momentum, decay, nesterov } => {
            let momenta = momenta.map(same).unwrap_or_default();
            let (m, count_momenta) = (momenta.as_ptr(), momenta.len());
            // SAFETY: all tensors outlive the call, and each list has `count` of them; `momenta`
            // may be empty.
            checked(|error| unsafe {
                gsplit_sgd(count, w, g, m, count_momenta, rate, momentum, decay, nesterov, error)
            })
        }
    }
}

/// Returns the memory that torch caches on GPUs to the driver. Fails unless torch has used a GPU.
pub fn give_back_memory() -> Result<()> {
    // SAFETY: frees only cached memory that is not in use.
    checked(|error| unsafe { gsplit_give_back_memory(error) })
}

/// Bytes of the GPU `device` that torch's allocator holds, in use or cached. torch's CUDA part must
/// be loaded.
pub fn bytes_held(device: Device) -> Result<u64> {
    let (Device::Cuda(ordinal), mut bytes) = (device, 0) else { return Ok(0) };
    // SAFETY: the number is written.
    checked(|error| unsafe { gsplit_bytes_held(ordinal as c_int, &mut bytes, error) })?;
    Ok(bytes)
}

/// Lets torch take the GPU memory that kernels have cached: torch calls [`make_room`] before it
/// asks the driver for more. torch's CUDA part must be loaded.
pub fn share_memory() -> Result<()> {
    unsafe extern "C" fn called(ordinal: c_int) {
        // Without room torch reports that it is out of memory.
        let _ = catch_unwind(|| make_room(ordinal.unsigned_abs() as usize));
    }
    // SAFETY: torch calls the function with the number of a GPU.
    checked(|error| unsafe { gsplit_before_torch_allocates(called, error) })
}

/// Lets products of f32 factors on GPUs round them to TF32 from now on, in the whole process.
pub fn round_to_tf32() -> Result<()> {
    // SAFETY: sets a flag of torch.
    checked(|error| unsafe { gsplit_round_to_tf32(error) })
}

/// Whether products may round to TF32: by [`round_to_tf32`], torch's settings or
/// `TORCH_ALLOW_TF32_CUBLAS_OVERRIDE`.
pub fn rounds_to_tf32() -> bool {
    // SAFETY: as above.
    unsafe { gsplit_rounds_to_tf32() }
}

/// Removes the gradient of `leaf`.
pub fn forget_gradient(leaf: &Tensor) -> Result<()> {
    // SAFETY: the tensor outlives the call.
    checked(|error| unsafe { gsplit_forget_gradient(leaf.as_ptr().cast(), error) })
}

/// Drops a boxed `T`; if its drop panics, the memory leaks.
///
/// # Safety
/// `pointer` is from `Box::<T>::into_raw` and not used afterwards.
unsafe extern "C" fn free<T>(pointer: *mut c_void) {
    // SAFETY: promised by the caller.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(pointer.cast::<T>()) })));
}

/// Runs a closure for `RustNode::apply`.
///
/// # Safety
/// As the shim calls it: `state` comes from [`attach`]; `gradient` and `saved` are owned tensors;
/// `needed` and `gradients` have `num_inputs` entries; `error` has [`ERROR_BYTES`] bytes.
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
    // SAFETY: promised by the caller; zero lengths come with pointers that may be null.
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
            false => Err(Error::Option(format!(
                "backward returned {} gradients for {num_inputs} inputs",
                found.len()
            ))),
        }
    }));
    let text = match outcome {
        Ok(Ok(found)) => {
            for (i, tensor) in found.into_iter().enumerate() {
                // SAFETY: `gradients` has an entry for every input, and their number was checked.
                unsafe { *gradients.add(i) = tensor.map_or(null_mut(), into_raw) };
            }
            return 0;
        }
        Ok(Err(problem)) => problem.to_string(),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or(panic.downcast_ref::<&str>().copied());
            let text = format!("backward panicked: {}", text.unwrap_or("no message"));
            // The panic's payload may panic in its own drop.
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

/// Borrows the values of a dense tensor of `T` on the host, row after row, without copying.
pub fn values<T: TensorValue>(tensor: &Tensor) -> Result<&[T]> {
    let (address, len) = memory::<T>(Device::Cpu, tensor)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: a contiguous tensor has numel() values from data_ptr() on, which live as long as the
    // tensor; nothing writes to them meanwhile (module doc).
    Ok(unsafe { std::slice::from_raw_parts(address as *const T, len) })
}

/// Borrows the values of a dense f32 tensor on the host for writing. Only the caller may use the
/// tensor meanwhile.
pub fn values_mut(tensor: &mut Tensor) -> Result<&mut [f32]> {
    let (start, len) = (values::<f32>(tensor)?.as_ptr(), tensor.numel());
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as in `values`; only the caller uses the memory meanwhile (module doc).
    Ok(unsafe { std::slice::from_raw_parts_mut(start.cast_mut(), len) })
}

/// A type of values that both torch and the kernels support.
pub trait TensorValue: Pod {
    /// Torch's name of the type.
    const KIND: Kind;
}

macro_rules! tensor_values {
    ($($value:ty: $kind:ident),*) => {
        $(impl TensorValue for $value {
            const KIND: Kind = Kind::$kind;
        })*
    };
}

tensor_values!(f32: Float, bf16: BFloat16, f16: Half, f64: Double, i32: Int, u8: Uint8);

/// Borrows the values of a dense tensor of `T` on the GPU `device`.
pub fn device_values<'a, T: TensorValue>(
    device: Device,
    tensor: &'a Tensor,
) -> Result<DeviceSlice<'a, T>> {
    let (address, len) = memory::<T>(device, tensor)?;
    // SAFETY: a contiguous tensor has numel() values from data_ptr() on, accessible to its device,
    // which live as long as the tensor; nothing writes to them meanwhile (module doc).
    Ok(unsafe { DeviceSlice::from_raw(address, len) })
}

/// Like [`device_values`], for writing. Only the caller may use the tensor meanwhile.
pub fn device_values_mut<'a, T: TensorValue>(
    device: Device,
    tensor: &'a mut Tensor,
) -> Result<DeviceSliceMut<'a, T>> {
    let (address, len) = memory::<T>(device, tensor)?;
    // SAFETY: as above; only the caller uses the tensor meanwhile (module doc).
    Ok(unsafe { DeviceSliceMut::from_raw(address, len) })
}

/// Copies `tensor` from the host to `gpu`, torch's `device`, without history. Does not wait, for up
/// to 2 MiB.
pub fn upload(gpu: &Gpu, device: Device, tensor: &Tensor) -> Result<Tensor> {
    let host = tensor.detach().contiguous();
    if host.device() != Device::Cpu || host.is_sparse() {
        return Err(Error::Torch(TchError::Kind(format!(
            "expected a dense tensor on the host, got {host:?}"
        ))));
    }
    let made = Tensor::f_empty(host.size(), (host.kind(), device))?;
    let bytes = host.numel() * host.kind().elt_size_in_bytes();
    if bytes > 0 {
        // SAFETY: both are contiguous and have `bytes` bytes from data_ptr() on; the written one
        // has not been shared yet.
        let (from, mut to) = unsafe {
            let from = std::slice::from_raw_parts(host.data_ptr().cast::<u8>(), bytes);
            (from, DeviceSliceMut::<u8>::from_raw(made.data_ptr() as u64, bytes))
        };
        to.upload(gpu, from)?;
    }
    Ok(made)
}

/// Address and number of the values of a dense tensor of `T` on `device`.
fn memory<T: TensorValue>(device: Device, tensor: &Tensor) -> Result<(u64, usize)> {
    let fits = tensor.kind() == T::KIND && tensor.device() == device && tensor.is_contiguous();
    if !fits || tensor.is_sparse() {
        let found =
            format!("expected a dense tensor of {:?} on {device:?}, got {tensor:?}", T::KIND);
        return Err(Error::Torch(TchError::Kind(found)));
    }
    let len = tensor.numel();
    Ok((if len == 0 { 0 } else { tensor.data_ptr() as u64 }, len))
}

/// Zeroed f32 memory, aligned to cache lines and, from 4 MiB on, to huge pages if the kernel has
/// them.
pub struct Pages {
    start: NonNull<f32>,
    layout: Layout,
}

// SAFETY: it owns its memory, like a `Vec<f32>`.
unsafe impl Send for Pages {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Pages {}

impl Pages {
    /// Size of a huge page on x86-64.
    const HUGE_BYTES: usize = 2 << 20;

    /// Allocates `len` zeros.
    pub fn zeroed(len: usize) -> Result<Self> {
        let refused =
            || Error::Option(format!("{len} values of f32 are more than there is memory for"));
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

/// Creates a tensor of `shape` on the first values of `owner`'s memory; `owner` is dropped with the
/// tensor's storage. The memory after these values is room for [`extended`].
pub fn adopt<T: AsMut<[f32]> + Send + 'static>(owner: T, shape: &[i64]) -> Result<Tensor> {
    let mut owner = Box::new(owner);
    let values = (*owner).as_mut();
    let (address, room) = (values.as_mut_ptr().cast(), values.len());
    let like = Tensor::f_empty([0], (Kind::Float, Device::Cpu))?;
    adopted(owner, address, room, &like, shape)
}

/// Creates a tensor of `shape` on the memory of `owner`, on the GPU that torch calls `device`, or
/// on the host if the GPU is emulated. `owner` is dropped with the tensor's storage.
pub fn adopt_on_device<T: TensorValue + Send>(
    device: Device,
    owner: DeviceBuffer<T>,
    shape: &[i64],
) -> Result<Tensor> {
    let (address, room) = (owner.slice().address() as *mut c_void, owner.len());
    adopted(Box::new(owner), address, room, &Tensor::f_empty([0], (T::KIND, device))?, shape)
}

/// Creates a tensor of `shape`, of the device and type of `like`, on the first of `room` values at
/// `address`, which belong to `owner`.
fn adopted<T>(
    owner: Box<T>,
    address: *mut c_void,
    room: usize,
    like: &Tensor,
    shape: &[i64],
) -> Result<Tensor> {
    let needed = shape
        .iter()
        .try_fold(1usize, |product, &dim| product.checked_mul(usize::try_from(dim).ok()?));
    if needed.is_none_or(|needed| needed > room) {
        return Err(Error::Torch(TchError::Shape(format!(
            "a tensor of shape {shape:?} on {room} values"
        ))));
    }
    let mut tensor = null_mut();
    let owner = Box::into_raw(owner).cast();
    // SAFETY: the memory is large enough for `shape` and, on the heap of `owner` or on a GPU, does
    // not move until C++ frees it; kernels on it run in call order on the stream that frees it.
    checked(|error| unsafe {
        gsplit_adopt(
            address,
            room as i64,
            like.as_ptr().cast(),
            shape.as_ptr(),
            shape.len(),
            owner,
            free::<T>,
            &mut tensor,
            error,
        )
    })?;
    // SAFETY: made with `new` by the shim for this call.
    Ok(unsafe { Tensor::from_ptr(tensor.cast()) })
}

/// Extends `matrix` to `rows` rows on the same memory, if `matrix` is the whole adopted tensor
/// ([`adopt`]) and there is room behind it; otherwise returns `None`. The new rows are
/// uninitialised; a matrix can be extended once.
pub fn extended(matrix: &Tensor, rows: usize) -> Result<Option<Tensor>> {
    let mut tensor = null_mut();
    // SAFETY: the tensor outlives the call.
    checked(|error| unsafe {
        gsplit_extend(matrix.as_ptr().cast(), rows as i64, &mut tensor, error)
    })?;
    // SAFETY: null, or made with `new` by the shim for this call.
    Ok((!tensor.is_null()).then(|| unsafe { Tensor::from_ptr(tensor.cast()) }))
}

/// Computes `out = a × b`, or `out += a × b` with `add`, on the calling thread only. `out` is
/// stored row after row, `a.rows × b.columns`.
///
/// # Panics
/// If the shapes do not fit together or a matrix does not fit in its slice.
pub fn gemm(out: &mut [f32], add: bool, a: MatrixView<'_>, b: MatrixView<'_>) {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    assert!(b.rows == k && out.len() == m * n, "shapes of a product");
    assert!(a.fits() && b.fits(), "a matrix outside its slice");
    if k == 0 {
        // The gemm crate leaves the result as it is.
        if !add {
            out.fill(0.0);
        }
        return;
    }
    // SAFETY: all elements were checked to be inside their slices; `out` is borrowed exclusively.
    // Strides of a slice's elements fit an isize, and a product with an empty matrix reads nothing.
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
