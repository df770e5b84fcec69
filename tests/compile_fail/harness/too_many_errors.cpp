// expect: zero: cause 1
static_assert(sizeof(int) > 1000, "zero: cause 1");
static_assert(sizeof(int) > 1000, "zero: cause 2");
static_assert(sizeof(int) > 1000, "zero: cause 3");
static_assert(sizeof(int) > 1000, "zero: cause 4");
static_assert(sizeof(int) > 1000, "zero: cause 5");
