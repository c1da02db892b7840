//! FP8 GEMM and grouped GEMM that can be timed: e4m3, bf16 output, the options the kernels choose themselves.

use crate::kernel::cuda::contract::{Contract, Pointer};
use crate::kernel::cuda::fp8_gemm::{Buffers, Dense, Options};
use crate::kernel::cuda::grouped_gemm::{self, Arguments};
use crate::kernel::cuda::launch::{Buffer, Gpu, tensor_map};
use crate::kernel::cuda::timed::{Timed, normals, rotation, uploads};
use crate::{Format, Result};

/// Buffers of one call.
struct Set {
    a: Buffer,
    b: Buffer,
    d: Buffer,
}

/// As many sets of e4m3 operands of so many codes, and bf16 results, as a rotation needs.
fn sets(gpu: &Gpu, [a, b, d]: [usize; 3]) -> Result<(Vec<Set>, u64)> {
    let bytes = (a + b + 2 * d) as u64;
    let copies = rotation(gpu, bytes);
    let a = uploads(gpu, &normals(Format::E4m3, a, 1)?, copies)?;
    let b = uploads(gpu, &normals(Format::E4m3, b, 2)?, copies)?;
    let sets = a.into_iter().zip(b).map(|(a, b)| Ok(Set { a, b, d: gpu.output(2 * d)? })).collect::<Result<_>>()?;
    Ok((sets, bytes))
}

/// `D[m,n] = A[m,k]·B[n,k]ᵀ`, one scale each; `promote`: sums go to f32 registers every 128 of K.
pub fn gemm(gpu: &'static Gpu, m: usize, n: usize, k: usize, promote: bool) -> Result<Timed> {
    let dense = Dense::new(gpu, Options { promote, ..Options::default() }, [m, n, k]);
    let (sets, bytes) = sets(gpu, [m * k, n * k, m * n])?;
    let (scale, copies) = (gpu.upload_f32(&[2f32.powi(-10)])?, sets.len());
    let launch = move |i: usize| {
        let Set { a, b, d } = &sets[i % copies];
        // SAFETY: buffers have the sizes of m, n, k and live in this closure.
        unsafe { gpu.enqueue(dense.launch(&Buffers::plain(a, b, d, [Pointer::from(&scale); 2]))?) }
    };
    let name = format!("fp8_gemm e4m3 tensor{}", if promote { ", promoted" } else { "" });
    let ops = 2 * (m * n * k) as u64;
    Ok(Timed { name, shape: format!("{m}x{n}x{k}"), bytes, ops, copies, launch: Box::new(launch) })
}

/// `groups` equal groups of the `rows` rows of A, each with its own B `[n, k]`, row scales.
pub fn grouped(gpu: &'static Gpu, groups: usize, rows: usize, n: usize, k: usize) -> Result<Timed> {
    let tile_n = grouped_gemm::tile_n(groups, rows, n, gpu.info.multiprocessors);
    let defines = grouped_gemm::defines(&Options::default(), tile_n);
    let (sets, bytes) = sets(gpu, [rows * k, groups * n * k, rows * n])?;
    let scales = gpu.upload_f32(&vec![2f32.powi(-10); rows.max(groups * n)])?;
    let offs = gpu.upload_i32(&(1..=groups).map(|g| (g * rows / groups) as i32).collect::<Vec<i32>>())?;
    let copies = sets.len();
    let launch = move |i: usize| {
        let Set { a, b, d } = &sets[i % copies];
        let arguments = Arguments {
            map_a: tensor_map(a, rows, k, k, 128)?,
            map_b: tensor_map(b, groups * n, k, k, tile_n as u32)?,
            d: d.into(),
            scale_a: (&scales).into(),
            scale_b: (&scales).into(),
            offs: (&offs).into(),
            groups,
            m: 0,
            n,
            k,
            band: grouped_gemm::BAND,
        };
        // SAFETY: offs end at the rows; buffers have the contract's sizes and live in this closure.
        unsafe { gpu.enqueue(arguments.launch(&defines, grouped_gemm::shape(gpu))) }
    };
    let name = format!("grouped_gemm e4m3 row, {groups} groups");
    let ops = 2 * (rows * n * k) as u64;
    Ok(Timed { name, shape: format!("{rows}x{n}x{k}"), bytes, ops, copies, launch: Box::new(launch) })
}
