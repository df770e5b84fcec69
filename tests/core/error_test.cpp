#include "support/catch.hpp"

#include <zero/core/error.hpp>

#include <string>
#include <type_traits>

namespace zero::test::error_test {

namespace {

struct Thrown {
    std::string text;
    std::string file;
    std::string function;
    int line = 0;
    int code = -1;
};

template <class Throwing>
Thrown caught(Throwing&& throwing) {
    try {
        throwing();
    } catch (Error const& error) {
        return {error.what(), error.where().file, error.where().function, error.where().line,
                error.code()};
    }
    return {};
}

[[noreturn]] void fail_here() {
    throw OutOfOrder("zero: out of order");
}

template <class E>
constexpr bool is_error = std::is_base_of_v<Error, E> && std::is_base_of_v<std::runtime_error, E>
                          && std::is_nothrow_copy_constructible_v<E>;

} // namespace

TEST_CASE("An error keeps its text and the file and line of its construction") {
    int const line = __LINE__ + 1;
    Thrown const base = caught([] { throw Error("zero: base"); });
    CHECK(base.text == "zero: base");
    CHECK(base.line == line);
    CHECK_THAT(base.file, test::contains_text("error_test.cpp"));
    CHECK(base.code == 0);
}

TEST_CASE("An inherited constructor records the place of the throw, not the place of the class") {
    int const line = __LINE__ + 1;
    Thrown const derived = caught([] { throw InvalidArgument("zero: invalid"); });
    CHECK(derived.line == line);
    CHECK_THAT(derived.file, test::contains_text("error_test.cpp"));
    int const deeper_line = __LINE__ + 1;
    Thrown const deeper = caught([] { throw TimedOut("zero: timed out"); });
    CHECK(deeper.line == deeper_line);
    CHECK_THAT(deeper.file, test::contains_text("error_test.cpp"));
    int const late_line = __LINE__ + 1;
    Thrown const late = caught([] { throw LateGradient("zero: late"); });
    CHECK(late.line == late_line);
    CHECK_THAT(late.file, test::contains_text("error_test.cpp"));
    CHECK(caught(fail_here).function == "fail_here");
}

TEST_CASE("An error keeps the place and the code that the caller passes") {
    Thrown const given = caught([] {
        throw CommunicatorError("zero: sum failed", SourceLocation{"wire.cpp", 12, "sum"}, 7);
    });
    CHECK(given.file == "wire.cpp");
    CHECK(given.line == 12);
    CHECK(given.function == "sum");
    CHECK(given.code == 7);
}

TEST_CASE("A copy of an error has the same text, place and code") {
    CommunicatorError const first("zero: copied", SourceLocation{"a.cpp", 3, "f"}, 9);
    CommunicatorError const second = first; // NOLINT(performance-unnecessary-copy-initialization)
    CHECK(second.what() == std::string("zero: copied"));
    CHECK(second.where().line == 3);
    CHECK(second.code() == 9);
}

TEST_CASE("Every error derives from Error and std::runtime_error, and related errors from each "
          "other") {
    STATIC_REQUIRE(is_error<InvalidArgument>);
    STATIC_REQUIRE(is_error<LayoutMismatch>);
    STATIC_REQUIRE(is_error<OutOfOrder>);
    STATIC_REQUIRE(is_error<UnusedParameter>);
    STATIC_REQUIRE(is_error<NonFiniteGradients>);
    STATIC_REQUIRE(is_error<LossScaleExhausted>);
    STATIC_REQUIRE(is_error<Released>);
    STATIC_REQUIRE(is_error<QueueFull>);
    STATIC_REQUIRE(is_error<BrokenEngine>);
    STATIC_REQUIRE(std::is_base_of_v<OutOfOrder, LateGradient>);
    STATIC_REQUIRE(std::is_base_of_v<CommunicatorError, CollectiveMismatch>);
    STATIC_REQUIRE(std::is_base_of_v<CommunicatorError, TimedOut>);
    STATIC_REQUIRE(std::is_base_of_v<CommunicatorError, Aborted>);
    STATIC_REQUIRE_FALSE(std::is_base_of_v<OutOfOrder, InvalidArgument>);
}

} // namespace zero::test::error_test
