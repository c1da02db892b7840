//! Records what cuBLASLt returns for every product of an earlier record, on the GPU at hand: the algorithm it chose, amax, and the
//! digest of the first rows. `cargo run --release --example vendor_record data/golden/h200/vendor.csv NEW.csv`

#[path = "../tests/common/vendor.rs"]
mod vendor;

use qassay::kernel::Kernel;
use qassay::kernel::vendor::gemm::CublasLt;
use std::collections::HashMap;

fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(from), Some(to)) = (args.next(), args.next()) else {
        eprintln!("give the record to repeat, and the file to write");
        std::process::exit(2);
    };
    let mut reader = csv::Reader::from_path(&from).expect("a record");
    let header = reader.headers().expect("a header").clone();
    let mut writer = csv::Writer::from_path(&to).expect("a file to write");
    writer.write_record(&header).expect("room");
    for record in reader.deserialize::<HashMap<String, String>>() {
        let mut fields = record.expect("a whole line");
        let number = |name: &str| fields[name].parse::<usize>().expect("a number");
        let (m, rows) = (number("m"), number("rows"));
        let job = vendor::Product::of(&fields).job(m);
        // SAFETY: no other thread runs yet.
        match fields["asked"].as_str() {
            "0" => unsafe { std::env::remove_var("QASSAY_SPLIT_K") },
            split => unsafe { std::env::set_var("QASSAY_SPLIT_K", split) },
        }
        let (algorithm, output) = match CublasLt.algorithm(&job).and_then(|a| Ok((a.unwrap_or_default(), CublasLt.run(&job)?)))
        {
            Ok(ran) => ran,
            Err(e) => {
                eprintln!("left out: {e}");
                continue;
            }
        };
        let amax = output.parts[0].amax.map_or(String::new(), |a| format!("{:08x}", a.to_bits()));
        let sha256 = qassay::compare::sha256(&vendor::bits(&output, rows));
        for (name, value) in [("algorithm", algorithm), ("amax", amax), ("sha256", sha256)] {
            fields.insert(name.into(), value);
        }
        writer.write_record(header.iter().map(|name| fields[name].as_str())).expect("room");
    }
    writer.flush().expect("room");
}
