// The main function of every test executable when Catch2 is version 2; version 3 brings a library
// with its own.

#define CATCH_CONFIG_RUNNER
// A crash is reported by the sanitizer or the debugger, which know more about it.
#define CATCH_CONFIG_NO_POSIX_SIGNALS
#include <catch2/catch.hpp>

int main(int argument_count, char** arguments) {
    Catch::Session session;
    // A test that asserts nothing, and a name that selects no test, are failures. (The command line
    // of version 2 takes only one of the two.)
    session.configData().warnings = static_cast<Catch::WarnAbout::What>(
        Catch::WarnAbout::NoAssertions | Catch::WarnAbout::NoTests);
    return session.run(argument_count, arguments);
}
