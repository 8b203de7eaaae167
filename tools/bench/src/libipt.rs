//! libipt's instruction and block decoders, by the crate `libipt`.
