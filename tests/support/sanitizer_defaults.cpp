// The sanitizers call these functions for their settings, so a test behaves the same when run by
// hand, by CTest or by a script. Without a sanitizer they are unused.

extern "C" char const* __asan_default_options();
extern "C" char const* __ubsan_default_options();
extern "C" char const* __tsan_default_options();

extern "C" char const* __asan_default_options() {
    return "detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1";
}

extern "C" char const* __ubsan_default_options() {
    return "print_stacktrace=1";
}

extern "C" char const* __tsan_default_options() {
    return "halt_on_error=1:second_deadlock_stack=1";
}
