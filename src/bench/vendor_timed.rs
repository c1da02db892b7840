//! cuBLASLt products that can be timed.

use crate::kernel::cuda::launch::{Buffer, Gpu};
use crate::kernel::cuda::timed::{Timed, normals, rotation, uploads};
use crate::kernel::vendor::lt::{Chosen, Library, LtScales, Out, Pointers, Problem, library};
use crate::{Format, Result};

/// Buffers of one call.
struct Set {
    a: Buffer,
    b: Buffer,
    d: Buffer,
}

/// `D[m,n] = A[m,k]·B[n,k]ᵀ` of e4m3 with one scale each, bf16 output; `fast`: fast accumulation.
pub fn fp8(gpu: &'static Gpu, m: usize, n: usize, k: usize, fast: bool) -> Result<Timed> {
    let out = Out::Float(Format::Bf16);
    let p = Problem { fast, ..plain(m, n, k, Format::E4m3, (LtScales::Tensor, LtScales::Tensor), out) };
    dense(gpu, p, &format!("cuBLASLt e4m3 tensor{}", if fast { " fast" } else { "" }))
}

/// f16 or bf16 in and out.
pub fn half(gpu: &'static Gpu, m: usize, n: usize, k: usize, format: Format) -> Result<Timed> {
    let p = plain(m, n, k, format, (LtScales::None, LtScales::None), Out::Float(format));
    dense(gpu, p, &format!("cuBLASLt {format}"))
}

/// int8 to int32.
pub fn int8(gpu: &'static Gpu, m: usize, n: usize, k: usize) -> Result<Timed> {
    let p = plain(m, n, k, Format::Int8, (LtScales::None, LtScales::None), Out::Int32);
    dense(gpu, p, "cuBLASLt int8 to int32")
}

/// `groups` equal groups of rows of A, each with its own B, row scales: one call a group, as the library has no grouped FP8 product.
pub fn fp8_groups(gpu: &'static Gpu, groups: usize, rows: usize, n: usize, k: usize) -> Result<Timed> {
    let each = rows / groups;
    let out = Out::Float(Format::Bf16);
    let p = Problem { fast: true, ..plain(each, n, k, Format::E4m3, (LtScales::Row, LtScales::Row), out) };
    let whole = Problem { m: rows, n: n * groups, ..p.clone() };
    let bytes = (rows * k + groups * n * k + 2 * rows * n) as u64;
    let copies = rotation(gpu, bytes);
    let (library, chosen, sets, scales) = prepare(gpu, &p, &whole, rows * n * 2, copies)?;
    let launch = move |i: usize| {
        let set = &sets[i % copies];
        (0..groups).try_for_each(|g| {
            let at = Pointers {
                a: set.a.pointer() + (g * each * k) as u64,
                b: set.b.pointer() + (g * n * k) as u64,
                d: set.d.pointer() + (g * each * n * 2) as u64,
                scale_a: scales.pointer(),
                scale_b: scales.pointer(),
                ..Pointers::default()
            };
            // SAFETY: each group's part lies inside buffers of the whole; they live in this closure.
            unsafe { library.enqueue(&p, &chosen, &at, gpu.stream().cast()) }
        })
    };
    Ok(Timed {
        name: format!("cuBLASLt e4m3 row fast, {groups} calls"),
        shape: format!("{rows}x{n}x{k}"),
        bytes,
        ops: 2 * (rows * n * k) as u64,
        copies,
        launch: Box::new(launch),
    })
}

fn plain(m: usize, n: usize, k: usize, format: Format, scales: (LtScales, LtScales), out: Out) -> Problem {
    Problem { m, n, k, a: format, b: format, scales, out, fast: false, bias: None, amax: false, split_k: None }
}

/// Algorithm and buffers: matrices as large as `whole` says, `copies` of them, and one buffer of scales for both sides.
fn prepare(
    gpu: &'static Gpu,
    p: &Problem,
    whole: &Problem,
    d_bytes: usize,
    copies: usize,
) -> Result<(&'static Library, Chosen, Vec<Set>, Buffer)> {
    let library = library()?;
    let chosen = library.choose(p)?;
    let a = uploads(gpu, &normals(p.a, whole.m * p.k, 1)?, copies)?;
    let b = uploads(gpu, &normals(p.b, whole.n * p.k, 2)?, copies)?;
    let sets = a.into_iter().zip(b).map(|(a, b)| Ok(Set { a, b, d: gpu.output(d_bytes)? })).collect::<Result<Vec<Set>>>()?;
    // Small enough that no output overflows: sums of K products of values up to 448.
    let scales = gpu.upload_f32(&vec![2f32.powi(-10); p.m.max(p.n)])?;
    Ok((library, chosen, sets, scales))
}

fn dense(gpu: &'static Gpu, p: Problem, name: &str) -> Result<Timed> {
    let size = |f: Format| f.bits() as usize / 8;
    let d_bytes = p.m * p.n * if let Out::Float(f) = p.out { size(f) } else { 4 };
    let bytes = (p.m * p.k * size(p.a) + p.n * p.k * size(p.b) + d_bytes) as u64;
    let copies = rotation(gpu, bytes);
    let (library, chosen, sets, scales) = prepare(gpu, &p, &p, d_bytes, copies)?;
    let (shape, ops) = (format!("{}x{}x{}", p.m, p.n, p.k), 2 * (p.m * p.n * p.k) as u64);
    let name = match chosen.algorithm.split_k {
        0 | 1 => name.to_string(),
        split => format!("{name}, K split by {split}"),
    };
    let launch = move |i: usize| {
        let set = &sets[i % copies];
        let at = Pointers {
            a: set.a.pointer(),
            b: set.b.pointer(),
            d: set.d.pointer(),
            scale_a: scales.pointer(),
            scale_b: scales.pointer(),
            ..Pointers::default()
        };
        // SAFETY: buffers have the sizes of the problem and live in this closure.
        unsafe { library.enqueue(&p, &chosen, &at, gpu.stream().cast()) }
    };
    Ok(Timed { name, shape, bytes, ops, copies, launch: Box::new(launch) })
}
