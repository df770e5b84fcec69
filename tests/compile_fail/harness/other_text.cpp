// expect: zero: this type is refused
static_assert(sizeof(int) > 1000, "zero: something else");
