//! Several GPUs, which reach each other or do not.

use gsplit_gpu_sim::happened;

use super::{alone, start};
use crate::cuda::{CudaSurvey, DeviceBuffer, Gpu, GpuError, Link};
use crate::scan::cuda::sum_before;

const LINKS: [(&str, Link); 3] = [("nvlink", Link::NvLink), ("pcie", Link::Pcie), ("none", Link::ThroughHost)];

/// Whether this process runs the body of `test`, and how its two GPUs are linked; otherwise one for each link passes.
fn linked(test: &str) -> Option<Link> {
    let here = |(link, _): &&(&str, Link)| alone(test, &[("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_LINK", link)]);
    LINKS.iter().find(here)?;
    let link = std::env::var("FAKE_CUDA_LINK").unwrap();
    LINKS.iter().find(|(name, _)| *name == link).map(|(_, link)| *link)
}

#[test]
fn links_are_those_of_the_driver() {
    let Some(link) = linked("pairs::links_are_those_of_the_driver") else { return };
    let survey = CudaSurvey::new();
    assert_eq!([(0, 1), (1, 0)].map(|(from, to)| survey.link(from, to)), [Ok(link), Ok(link)]);
}

#[test]
fn bytes_are_copied_whatever_the_link() {
    let Some(link) = linked("pairs::bytes_are_copied_whatever_the_link") else { return };
    let [one, other] = [0, 1].map(|ordinal| Gpu::open(ordinal).unwrap().side_stream().unwrap());
    let from = one.upload(&[4u32, 5, 6]).unwrap();
    let mut to = other.alloc::<u32>(2).unwrap();
    other.wait_for(&one).unwrap();
    to.slice_mut().copy_across(&other, &one, from.slice().part(1, 3).unwrap().address()).unwrap();
    one.wait_for(&other).unwrap();
    assert_eq!(to.to_vec().unwrap(), [5, 6]);
    assert_eq!(happened("staged"), 1, "nobody has asked for access");
    let reached = link != Link::ThroughHost;
    assert_eq!([one.reaches(&other), other.reaches(&one)], [Ok(reached), Ok(reached)]);
    // Memory of the pool, and memory that is not.
    let shown = DeviceBuffer::<u32>::exported(&one, 2).unwrap();
    other.wait_for(&one).unwrap();
    for address in [from.slice().address(), shown.slice().address()] {
        to.slice_mut().copy_across(&other, &one, address).unwrap();
    }
    one.wait_for(&other).unwrap();
    other.synchronise().unwrap();
    assert_eq!(happened("staged"), if reached { 1 } else { 3 });
}

#[test]
fn kernels_read_another_gpus_memory_where_it_is_reached() {
    let Some(link) = linked("pairs::kernels_read_another_gpus_memory_where_it_is_reached") else { return };
    let [one, other] = [0, 1].map(|ordinal| Gpu::open(ordinal).unwrap());
    // Taken before and after.
    let early = other.zeros::<u32>(3).unwrap();
    assert_eq!(one.reaches(&other), Ok(link != Link::ThroughHost));
    if link == Link::ThroughHost {
        return;
    }
    let late = other.upload(&[1u32, 1, 1]).unwrap();
    one.wait_for(&other).unwrap();
    for (mut values, expected) in [(early, [0, 0, 0]), (late, [0, 1, 2])] {
        sum_before(&one, &mut values.slice_mut(), None).unwrap();
        other.wait_for(&one).unwrap();
        assert_eq!(values.to_vec().unwrap(), expected);
    }
}

/// A kernel does not reach another GPU before somebody asked whether it can: the fake would show a cache of rows that
/// forgot to.
#[test]
fn kernels_do_not_read_another_gpus_memory_unasked() {
    let Some(_) = linked("pairs::kernels_do_not_read_another_gpus_memory_unasked") else { return };
    let [one, other] = [0, 1].map(|ordinal| Gpu::open(ordinal).unwrap());
    let mut values = other.zeros::<u32>(3).unwrap();
    other.synchronise().unwrap();
    let copied = one.alloc::<u32>(3).unwrap().slice_mut().copy_from(&one, values.slice()).unwrap_err();
    assert_eq!(copied, GpuError::Call { call: "cuMemcpyDtoDAsync", reason: "invalid argument".into() });
    let sums = values.slice_mut().zero(&one).unwrap_err();
    assert_eq!(sums, GpuError::Call { call: "cuMemsetD8Async", reason: "invalid argument".into() });
}

#[test]
fn ranks_that_are_threads_copy_from_gpu_to_gpu() {
    for (devices, link, haste) in [("2", "none", ""), ("3", "nvlink", ""), ("3", "pcie", "5")] {
        let mut variables = vec![("FAKE_CUDA_DEVICES", devices), ("FAKE_CUDA_LINK", link)];
        variables.extend((!haste.is_empty()).then_some(("FAKE_CUDA_HASTE", haste)));
        start(&["real_gpus_copy"], &variables, 1);
    }
}
