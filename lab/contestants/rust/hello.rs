// rust: prints a line: for how long a program takes to begin.
fn main() {
    println!("hello");
}
