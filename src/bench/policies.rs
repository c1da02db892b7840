//! What each policy of keeping scale_inv costs the forward of a linear layer: both casts to e4m3, what the policy adds, the GEMM.
//!
//! ```text
//! packaged   each cast writes the scale_inv of its bytes                          3 kernels
//! shared     the recipe has them; casts write none                                3 kernels
//! cloned     as shared, and the recipe's three are copied for the backward        3 kernels and a copy
//! ```

use crate::kernel::cuda::cast;
use crate::kernel::cuda::contract::{Contract, Pointer};
use crate::kernel::cuda::fp8_gemm::{Buffers, Dense, Options};
use crate::kernel::cuda::launch::{Buffer, Gpu};
use crate::kernel::cuda::timed::{Timed, normals, rotation, time, uploads};
use crate::scenario::Policy;
use crate::scenario::device::Cost;
use crate::{Format, Result};
use std::time::Instant;

/// tokens, features out, features in: a layer that the host's time to start kernels decides, one of 2048 tokens, one that the GEMM decides.
const SHAPES: [(usize, usize, usize); 3] = [(256, 1024, 1024), (2048, 4096, 4096), (8192, 8192, 8192)];
/// Layers started in a row where the host's time is measured, and how often.
const LAYERS: usize = 50;
const ROUNDS: usize = 5;

/// Times every policy is measured, in turns: clocks follow the temperature.
const TURNS: usize = 3;

/// Every policy at every shape. Errors: out of memory; a kernel's.
pub fn costs(gpu: &'static Gpu) -> Result<Vec<Cost>> {
    let mut all = Vec::new();
    for shape in SHAPES {
        let layers = Policy::ALL.into_iter().map(|p| Ok((p, layer(gpu, shape, p)?)));
        let mut layers = layers.collect::<Result<Vec<(Policy, Timed)>>>()?;
        let mut seen: Vec<[Vec<f64>; 3]> = vec![Default::default(); layers.len()];
        for _ in 0..TURNS {
            for ((_, layer), seen) in layers.iter_mut().zip(&mut seen) {
                seen[0].push(time(gpu, layer)?.median * 1e6);
                let (host, wall) = started(gpu, layer)?;
                seen[1].push(host);
                seen[2].push(wall);
            }
        }
        for ((policy, _), seen) in layers.into_iter().zip(seen) {
            let [device_us, host_us, wall_us] = seen.map(median);
            all.push(Cost { policy, shape, device_us, host_us, wall_us });
        }
    }
    Ok(all)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Microseconds a layer: to start [`LAYERS`] of them, and until they are done; medians of [`ROUNDS`].
fn started(gpu: &Gpu, layer: &mut Timed) -> Result<(f64, f64)> {
    let (mut host, mut wall) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        gpu.synchronize(&layer.name)?;
        let begin = Instant::now();
        (0..LAYERS).try_for_each(|i| (layer.launch)(i))?;
        host.push(begin.elapsed().as_secs_f64());
        gpu.synchronize(&layer.name)?;
        wall.push(begin.elapsed().as_secs_f64());
    }
    let each = 1e6 / LAYERS as f64;
    Ok((median(host) * each, median(wall) * each))
}

/// Buffers of one rotation.
struct Set {
    x: Buffer,
    w: Buffer,
    xq: Buffer,
    wq: Buffer,
    d: Buffer,
}

/// A call on bf16 `x[m,k]`, `w[n,k]` that returns bf16 `d[m,n]`.
fn layer(gpu: &'static Gpu, (m, n, k): (usize, usize, usize), policy: Policy) -> Result<Timed> {
    let dense = Dense::new(gpu, Options::default(), [m, n, k]);
    let bytes = (3 * (m * k + n * k) + 2 * m * n) as u64;
    let copies = rotation(gpu, bytes);
    let xs = uploads(gpu, &normals(Format::Bf16, m * k, 1)?, copies)?;
    let ws = uploads(gpu, &normals(Format::Bf16, n * k, 2)?, copies)?;
    let set = |(x, w)| Ok(Set { x, w, xq: gpu.output(m * k)?, wq: gpu.output(n * k)?, d: gpu.output(2 * m * n)? });
    let sets = xs.into_iter().zip(ws).map(set).collect::<Result<Vec<Set>>>()?;
    // Of input, weight and output, as a linear layer of Transformer Engine has them.
    let (scale, amax) = (gpu.upload_f32(&[97.3, 88.1, 1.0])?, gpu.upload_f32(&[0.0; 3])?);
    let (scale_inv, clone) = (gpu.upload_f32(&[1.0 / 97.3, 1.0 / 88.1, 1.0])?, gpu.upload_f32(&[0.0; 3])?);
    let launch = move |i: usize| {
        let s = &sets[i % copies];
        let at = |b: &Buffer, i: u64| Pointer(b.pointer() + 4 * i);
        for (i, x, q, elements) in [(0, &s.x, &s.xq, m * k), (1, &s.w, &s.wq, n * k)] {
            let arguments = cast::Arguments {
                x: x.into(),
                codes: q.into(),
                scale: at(&scale, i),
                amax: at(&amax, i),
                scale_inv: if policy == Policy::Packaged { at(&scale_inv, i) } else { Pointer::NULL },
                noop: Pointer::NULL,
                n: elements as u64,
            };
            // SAFETY: x and q have so many elements, all buffers live in this closure.
            unsafe { gpu.enqueue(arguments.launch(&[], cast::shape(elements))) }?;
        }
        if policy == Policy::Cloned {
            gpu.enqueue_copy(&clone, &scale_inv)?;
        }
        let on = Buffers::plain(&s.xq, &s.wq, &s.d, [at(&scale_inv, 0), at(&scale_inv, 1)]);
        // SAFETY: buffers have the sizes of m, n, k and live in this closure.
        unsafe { gpu.enqueue(dense.launch(&on)?) }
    };
    let ops = 2 * (m * n * k) as u64;
    Ok(Timed {
        name: format!("forward, {policy}"),
        shape: format!("{m}x{n}x{k}"),
        bytes,
        ops,
        copies,
        launch: Box::new(launch),
    })
}
