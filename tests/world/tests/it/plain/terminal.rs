//! D.16: the program's own terminal on a person's.
