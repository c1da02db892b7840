//! FP8 GEMM and grouped GEMM that can be timed: e4m3, bf16 output, the options the kernels choose themselves.

use crate::kernel::cuda::fp8_gemm::{BLOCK, SHARED, Tiles, grouped_tile};
use crate::kernel::cuda::launch::{Arg, Buffer, Gpu, Launch, tensor_map};
use crate::kernel::cuda::timed::{Timed, normals, rotation, uploads};
use crate::{Format, Result};

/// What both options sets begin with.
fn options(promote: bool) -> Vec<String> {
    vec!["-DA_E5M2=0".into(), "-DB_E5M2=0".into(), "-DOUT=0".into(), format!("-DPROMOTE={}", i32::from(promote))]
}

/// `D[m,n] = A[m,k]·B[n,k]ᵀ`, one scale each; `promote`: sums go to f32 registers every 128 of K.
pub fn gemm(gpu: &'static Gpu, m: usize, n: usize, k: usize, promote: bool) -> Result<Timed> {
    let tiles = Tiles::of(m, n, gpu.info.multiprocessors);
    let mut defines = options(promote);
    defines.extend(["-DSCALE=0".into(), "-DORDER=0".into(), "-DBIAS=0".into()]);
    defines.extend(tiles.defines());
    let bytes = (m * k + n * k + 2 * m * n) as u64;
    let copies = rotation(gpu, bytes);
    let a = uploads(gpu, &normals(Format::E4m3, m * k, 1)?, copies)?;
    let b = uploads(gpu, &normals(Format::E4m3, n * k, 2)?, copies)?;
    let d = (0..copies).map(|_| gpu.output(2 * m * n)).collect::<Result<Vec<Buffer>>>()?;
    let scale = gpu.upload_f32(&[2f32.powi(-10)])?;
    let launch = move |i: usize| {
        let i = i % copies;
        let mut args = [
            tensor_map(&a[i], m, k, k, 128)?,
            tensor_map(&b[i], n, k, k, tiles.box_b())?,
            d[i].arg(),
            scale.arg(),
            scale.arg(),
            Arg::Pointer(0),
            Arg::Pointer(0),
            Arg::Pointer(0),
            Arg::Pointer(0),
            Arg::Int(m as i32),
            Arg::Int(n as i32),
            Arg::Int(k as i32),
            Arg::Int(n as i32),
            Arg::Int(0),
            Arg::Int(0),
            Arg::Int(0),
            Arg::Int(16),
        ];
        let launch = Launch {
            source: "fp8_gemm.cu",
            defines: &defines,
            entry: "fp8_gemm",
            grid: (tiles.grid, 1, 1),
            block: BLOCK,
            shared: SHARED,
        };
        // SAFETY: the arguments are contract fp8_gemm's, in its order; buffers have the sizes of m, n, k and live in this closure.
        unsafe { gpu.enqueue(&launch, &mut args) }
    };
    let name = format!("fp8_gemm e4m3 tensor{}", if promote { ", promoted" } else { "" });
    let ops = 2 * (m * n * k) as u64;
    Ok(Timed { name, shape: format!("{m}x{n}x{k}"), bytes, ops, copies, launch: Box::new(launch) })
}

/// `groups` equal groups of the `rows` rows of A, each with its own B `[n, k]`, row scales.
pub fn grouped(gpu: &'static Gpu, groups: usize, rows: usize, n: usize, k: usize) -> Result<Timed> {
    let tile_n = grouped_tile(groups, rows, n, gpu.info.multiprocessors);
    let mut defines = options(false);
    defines.extend([format!("-DTILE_N={tile_n}"), "-DCLUSTER=0".into()]);
    let bytes = (rows * k + groups * n * k + 2 * rows * n) as u64;
    let copies = rotation(gpu, bytes);
    let a = uploads(gpu, &normals(Format::E4m3, rows * k, 1)?, copies)?;
    let b = uploads(gpu, &normals(Format::E4m3, groups * n * k, 2)?, copies)?;
    let d = (0..copies).map(|_| gpu.output(2 * rows * n)).collect::<Result<Vec<Buffer>>>()?;
    let scales = gpu.upload_f32(&vec![2f32.powi(-10); rows.max(groups * n)])?;
    let offs = gpu.upload_i32(&(1..=groups).map(|g| (g * rows / groups) as i32).collect::<Vec<i32>>())?;
    let launch = move |i: usize| {
        let i = i % copies;
        let mut args = [
            tensor_map(&a[i], rows, k, k, 128)?,
            tensor_map(&b[i], groups * n, k, k, tile_n)?,
            d[i].arg(),
            scales.arg(),
            scales.arg(),
            offs.arg(),
            Arg::Int(groups as i32),
            Arg::Int(0),
            Arg::Int(n as i32),
            Arg::Int(k as i32),
            Arg::Int(8),
        ];
        let launch = Launch {
            source: "grouped_gemm.cu",
            defines: &defines,
            entry: "grouped_gemm_rows",
            grid: (gpu.info.multiprocessors as u32, 1, 1),
            block: BLOCK,
            shared: SHARED,
        };
        // SAFETY: the arguments are the contract's, in its order; offs end at the rows; buffers live in this closure.
        unsafe { gpu.enqueue(&launch, &mut args) }
    };
    let name = format!("grouped_gemm e4m3 row, {groups} groups");
    let ops = 2 * (rows * n * k) as u64;
    Ok(Timed { name, shape: format!("{rows}x{n}x{k}"), bytes, ops, copies, launch: Box::new(launch) })
}
