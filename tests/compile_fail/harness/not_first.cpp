// expect: zero: the cause
static_assert(sizeof(int) > 1000, "zero: a consequence");
static_assert(sizeof(int) > 1000, "zero: the cause");
