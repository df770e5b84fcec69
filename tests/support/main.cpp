// The main function of all test executables with Catch2 2. Catch2 3 has a library for it.

#define CATCH_CONFIG_RUNNER
// Sanitizers and debuggers report a crash better.
#define CATCH_CONFIG_NO_POSIX_SIGNALS
#include <catch2/catch.hpp>

int main(int argument_count, char** arguments) {
    Catch::Session session;
    // A test without assertions is a failure, and so is a name that selects no test. The command
    // line of version 2 accepts only one of the two.
    session.configData().warnings = static_cast<Catch::WarnAbout::What>(
        Catch::WarnAbout::NoAssertions | Catch::WarnAbout::NoTests);
    return session.run(argument_count, arguments);
}
