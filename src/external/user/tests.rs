//! What can be known of a user's kernel without a GPU: its declaration against cases, and NVRTC's verdict.

use super::*;
use crate::kernel::cuda::nvrtc::load;
use crate::sweep::{Sweep, build};

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/my_kernel.cu")
}

/// The job of the one case of a sweep.
fn job(keys: &str) -> Job {
    let text = format!("about = \"x\"\n[[cases]]\nname = \"x\"\n{keys}\n");
    let sweep = Sweep::parse(Path::new("x.toml"), &text, 0).unwrap();
    build::build(&sweep.cases[0]).unwrap().job
}

fn gemm(recipe: &str, more: &str) -> Job {
    job(&format!(
        "op = [\"gemm\"]\nshape = [\"17x33x384\"]\nrecipe = [\"{recipe}\"]\naccumulator = [\"f32_sequential\"]\n{more}"
    ))
}

fn declared(op: Op, signature: &str) -> UserKernel {
    let entry = signature.split('(').next().unwrap().to_string();
    UserKernel::new(&example(), &entry, op, Some(signature.into())).unwrap()
}

#[test]
fn the_example_takes_the_cases_that_its_comment_says_and_refuses_others_with_the_reason() {
    let kernel = UserKernel::new(&example(), "my_gemm", Op::Gemm, None).unwrap();
    kernel.check(&gemm("float8_rowwise", "out = [\"bf16\"]")).unwrap();
    kernel.check(&gemm("float8_rowwise", "bias = [true]\nout = [\"bf16\"]")).unwrap();
    for (job, why) in [
        (gemm("te_current", "out = [\"bf16\"]"), "its `a.scale_inv` is row, the case's is tensor f32"),
        (gemm("float8_rowwise:e5m2", "out = [\"bf16\"]"), "its `a.codes` is e4m3, the case's is e5m2"),
        (gemm("float8_rowwise", "out = [\"f32\"]"), "its `out` is bf16, the case asks for f32"),
        (gemm("float8_rowwise", "out = [\"scaled:e4m3\"]"), "its signature has no `out.codes`, which the case asks for"),
        (gemm("te_mxfp8", "out = [\"bf16\"]"), "is row, the case's is group:32 e8m0"),
        (gemm("te_nvfp4", "out = [\"bf16\"]"), "is e4m3, the case's is e2m1"),
    ] {
        let e = kernel.check(&job).unwrap_err();
        assert!(matches!(&e, Error::Unsupported { what, .. } if what == "external/my_kernel:my_gemm"), "{e}");
        assert!(e.to_string().contains(why), "{why}: {e}");
    }
}

#[test]
fn tensors_reach_it_as_declared() {
    let mixed = "op = [\"gemm\"]\nshape = [\"4x8x128\"]\ndtype = [\"f16\"]\nrecipe = [\"none+affine_asym:uint4:g64\"]\n\
                 accumulator = [\"f32_sequential\"]\nout = [\"f16\"]";
    let job = job(mixed);
    let Some(Operand::Quantized(q)) = job.operands.b() else { panic!() };
    let with = |scales: &str| {
        let b = format!("b.codes: uint4 high_first, b.scale_inv: {scales}, b.zero_point: integer");
        declared(Op::Gemm, &format!("f(a: f16, {b}, out) grid=1 block=1"))
    };
    let e = with("group:64").check(&job).unwrap_err().to_string();
    assert!(e.contains("its `b.scale_inv` is f32, the case's is f16"), "{e}");
    let kernel = with("group:64 f16");
    let tensors = kernel.inputs(&job).unwrap();
    let (_, shape, bytes) = &tensors["b.codes"];
    assert_eq!(shape, &[8, 64]);
    assert_eq!(bytes[0], q.codes()[0] << 4 | q.codes()[1]);
    // A reciprocal in place of scale_inv.
    let kernel = declared(Op::Gemm, "f(a.codes: e4m3, a.scale: row, b.codes, b.scale_inv, out) grid=1 block=1");
    let rows = gemm("float8_rowwise_gw_hp", "out = [\"f32\"]");
    let tensors = kernel.inputs(&rows).unwrap();
    let floats = |name: &str| -> Vec<f32> {
        tensors[name].2.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    assert_eq!(floats("a.scale"), floats("a.scale_inv").iter().map(|s| 1.0 / s).collect::<Vec<_>>());
    // What the case has and the signature does not would be left out in silence.
    let kernel = declared(Op::Gemm, "f(a.codes, a.scale_inv, b.codes, out) grid=1 block=1");
    let e = kernel.check(&rows).unwrap_err().to_string();
    assert!(e.contains("its signature has no `b.scale_inv`, which the case has"), "{e}");
    let kernel = declared(Op::Gemm, "f(a.codes, a.scale_inv, b.codes, b.scale_inv, gamma, out) grid=1 block=1");
    let e = kernel.check(&rows).unwrap_err().to_string();
    assert!(e.contains("its signature has `gamma`, which the case has not"), "{e}");
}

#[test]
fn results_of_recipes_name_all_that_is_written() {
    let job = job("op = [\"cast\"]\nshape = [\"8x64\"]\nout = [\"te_mxfp8\"]");
    let e = declared(Op::Cast, "f(a, out.codes, m, k) grid=1 block=1").check(&job).unwrap_err().to_string();
    assert!(e.contains("its signature has no `out.scale_inv`, which the case asks for"), "{e}");
    let e = declared(Op::Cast, "f(a, out.codes: e5m2, out.scale_inv) grid=1 block=1").check(&job).unwrap_err().to_string();
    assert!(e.contains("its `out.codes` is e5m2, the case asks for e4m3"), "{e}");
    declared(Op::Cast, "f(a, out.codes: e4m3, out.scale_inv: group:32 e8m0, m, k) grid=1 block=1").check(&job).unwrap();
}

#[test]
fn numbers_are_the_cases() {
    let job = gemm("te_block_1x128_fp32", "");
    let sizes = sizes(&job);
    assert_eq!(sizes, [17, 33, 384, 1]);
    let int = |name: &str| match number(&job, &sizes, name, false).unwrap() {
        Arg::Int(i) => i,
        _ => panic!("{name}"),
    };
    assert_eq!(["m", "n", "k", "e", "a.stride", "out.stride", "b.scale_stride"].map(int), [17, 33, 384, 1, 384, 33, 3]);
    assert!(matches!(number(&job, &sizes, "k", true).unwrap(), Arg::Long(384)));
    assert!(number(&job, &[1 << 40, 0, 0, 0], "m", false).err().unwrap().to_string().contains("declare it i64"));
}

#[test]
fn what_was_never_written_is_found_and_what_is_not_the_same_twice_is_not() {
    let e = unwritten("d", [&[1, 2, 0xff, 0xff], &[1, 2, 0x5a, 0x5a]], 2).unwrap_err().to_string();
    assert!(e.contains("element 1 was never written"), "{e}");
    unwritten("d", [&[1, 2, 0xff, 0xff], &[1, 3, 0xff, 0xff]], 2).unwrap();
}

/// NVRTC alone says whether it compiles, and what is missing.
#[test]
fn it_is_compiled_without_a_gpu() {
    if let Err(e) = load() {
        eprintln!("skipped: {e}");
        return;
    }
    let kernel = UserKernel::new(&example(), "my_gemm", Op::Gemm, None).unwrap();
    let cubin = kernel.cubin("sm_90a").unwrap();
    assert!(cubin.starts_with(b"\x7fELF"));
    assert_eq!(entries(&cubin), ["my_gemm"]);
    assert!(entries(b".text").is_empty() && entries(b"..text.f\0.text.f").len() == 1);
    let folder = tempfile::tempdir().unwrap();
    let broken = |source: &str, entry: &str| {
        let path = folder.path().join("mine.cu");
        std::fs::write(&path, source).unwrap();
        let kernel = UserKernel::new(&path, entry, Op::Gemm, Some(format!("{entry}(out) grid=1 block=1"))).unwrap();
        kernel.cubin("sm_90a").unwrap_err().to_string()
    };
    let e = broken("extern \"C\" __global__ void f(float* out) { out[0] = x; }", "f");
    assert!(e.contains("mine.cu") && e.contains("identifier \"x\" is undefined"), "{e}");
    let e = broken("__global__ void f(float* out) { out[0] = 1; }", "f");
    assert!(e.contains("found _Z1fPf, expected `f`: declare it extern \"C\""), "{e}");
}

#[test]
fn a_cubin_needs_a_signature() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.cubin");
    std::fs::write(&path, b"\x7fELF and more").unwrap();
    let e = UserKernel::new(&path, "f", Op::Gemm, None).err().unwrap().to_string();
    assert!(e.contains("a cubin, which holds no comments, expected --signature"), "{e}");
    let e = UserKernel::new(&path, "f", Op::Gemm, Some("g(out) grid=1 block=1".into())).err().unwrap().to_string();
    assert!(e.contains("found entry g, expected entry f"), "{e}");
    std::fs::write(&path, [0xff, 0xfe, 0]).unwrap();
    let e = UserKernel::new(&path, "f", Op::Gemm, None).err().unwrap().to_string();
    assert!(e.contains("neither text nor an ELF file"), "{e}");
}
