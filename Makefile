# The commands people type. `make help` lists them.
.PHONY: help report test setup fmt clippy unit kernels program check bench clean

help:
	@echo "make report   run the standard sweep and write its report"
	@echo "make test     set up what is needed, then run everything that CI runs"
	@echo "make bench    time the codecs on this machine"
	@echo "make clean    remove build outputs, reports and the local environment"

report:
	cargo run --release -- run

# One step a line, so that the first that fails is the last thing printed.
test: setup fmt clippy unit kernels program check

setup:
	scripts/setup.sh

fmt:
	cargo fmt --check

clippy:
	cargo clippy --all-targets --features notebook -- -D warnings
	cargo clippy --lib --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --no-deps --quiet

# Unit and doc tests with overflow checks.
unit:
	cargo test --lib --bins --features notebook
	cargo test --doc

# Every CUDA kernel to machine code, with no GPU.
kernels:
	cargo run --release --quiet -- compile --arch sm_89,sm_90a,sm_100a

# Whole-program and exhaustive tests, on the program that people run.
program:
	cargo test --release --test '*'

# Every case of the sweeps that have a baseline, to the bit; never writes to it.
check:
	cargo run --release -- check

bench:
	cargo run --release -- bench codec

clean:
	cargo clean
	rm -rf .venv .tools
	find reports -mindepth 1 -maxdepth 1 ! -name README.md ! -name example -exec rm -rf {} +
