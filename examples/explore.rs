#[path = "../tests/common/vendor.rs"]
mod vendor;
use qassay::model::bulk;
use qassay::model::product::Plan;
use std::collections::HashMap;

fn main() {
    let dir = "/tmp/vr2";
    let bin = std::fs::read(format!("{dir}/vendor.bin")).unwrap();
    let mut at = 0;
    let mut reader = csv::Reader::from_path(format!("{dir}/vendor.csv")).unwrap();
    for r in reader.deserialize::<HashMap<String, String>>() {
        let f = r.unwrap();
        let p = vendor::Product::of(&f);
        let rows: usize = f["rows"].parse().unwrap();
        let size = p.out.parse::<qassay::Format>().unwrap().bits() as usize / 8;
        let bytes = &bin[at..at + rows * p.n * size];
        at += bytes.len();
        let asked: usize = f["asked"].parse().unwrap();
        let square = p.k == 4224 && p.out == "f32";
        let half = p.a == "f16" && p.k == 8200 && asked > 0;
        if !(square || half) {
            continue;
        }
        let rows = 1;
        let n = p.n;
        let want: Vec<u32> = bytes[..rows * n * 4].chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
        let job = p.job(rows);
        let plan = Plan::of(&job).unwrap();
        let q = plan.problems().next().unwrap();
        let tile = if square { 128 } else { 64 };
        let share = |y: &[f32]| y.iter().zip(&want).filter(|(a, b)| a.to_bits() == **b).count() as f64 / want.len() as f64;
        let tiles = p.k.div_ceil(tile);
        let s = asked;
        // Boundaries in tiles.
        let mut ways: Vec<(String, Vec<usize>)> = Vec::new();
        for unit in [1, 2, 4] {
            let t = tiles.div_ceil(unit);
            let c = t.div_ceil(s) * unit;
            ways.push((format!("ceil{unit}"), (0..=s).map(|i| (i * c).min(tiles)).collect()));
            let fl = (t / s) * unit;
            ways.push((format!("floor{unit}"), (0..=s).map(|i| if i == s { tiles } else { i * fl }).collect()));
            let b = |i: usize| ((t / s) * i + i.min(t % s)) * unit;
            ways.push((format!("balanced{unit}"), (0..=s).map(|i| b(i).min(tiles)).collect()));
            let b2 = |i: usize| (i * t / s) * unit;
            ways.push((format!("even{unit}"), (0..=s).map(|i| b2(i).min(tiles)).collect()));
        }
        if square {
            let blocks = q.blocks();
            let mut sums = Vec::new();
            for k in &blocks {
                let mut out = vec![0.0f32; rows * n];
                bulk::tile(&plan.accumulator, q.a, 0..rows, q.b, 0..n, k.clone(), &mut out).unwrap();
                sums.push(out);
            }
            for (name, w) in &ways {
                let mut line = format!("S={s} {name}:");
                for order in 0..4 {
                    for combine in 0..3 {
                        let y: Vec<f32> = (0..n)
                            .map(|j| {
                                let mut parts = Vec::new();
                                for i in 0..s {
                                    let mut y = 0.0f32;
                                    for b in w[i]..w[i + 1] {
                                        let (sa, sb) = (q.a.scale_inv(0, b * 128), q.b.scale_inv(j, b * 128));
                                        let x = sums[b][j];
                                        y = match order {
                                            0 => x.mul_add(sa * sb, y),
                                            1 => (x * sa).mul_add(sb, y),
                                            2 => (x * sb).mul_add(sa, y),
                                            _ => y + x * (sa * sb),
                                        };
                                    }
                                    parts.push(y);
                                }
                                match combine {
                                    0 => parts.iter().skip(1).fold(parts[0], |a, b| a + b),
                                    1 => parts.iter().rev().skip(1).fold(parts[s - 1], |a, b| a + b),
                                    _ => parts[..s - 1].iter().fold(parts[s - 1], |a, b| a + b),
                                }
                            })
                            .collect();
                        line += &format!(" {:.3}", share(&y));
                    }
                }
                println!("{line}");
            }
        } else {
            for (name, w) in &ways {
                let mut parts = Vec::new();
                for i in 0..s {
                    let mut out = vec![0.0f32; rows * n];
                    if w[i] < w[i + 1] {
                        bulk::tile(&plan.accumulator, q.a, 0..rows, q.b, 0..n, w[i] * tile..(w[i + 1] * tile).min(p.k), &mut out).unwrap();
                    }
                    parts.push(out);
                }
                let y: Vec<f32> = (0..n).map(|j| parts.iter().skip(1).fold(parts[0][j], |a, b| a + b[j])).collect();
                let z: Vec<f32> = (0..n).map(|j| parts[..s - 1].iter().fold(parts[s - 1][j], |a, b| a + b[j])).collect();
                println!("f16 S={s} {name}: {:.3} {:.3}", share(&y), share(&z));
            }
        }
    }
}
