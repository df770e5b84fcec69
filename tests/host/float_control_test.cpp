#include "queue_kinds.hpp"
#include "support/catch.hpp"

#include <zero/host/detail/float_control.hpp>
#include <zero/host/host_backend.hpp>

#include <cstddef>
#include <span>
#include <vector>

// Commands compute with the default floating-point control word on every kind of queue.

namespace zero::test::float_control_test {

namespace {

using host::detail::FloatControl;

#if defined(__x86_64__)
/// Subnormal operands and results become zero, and results are rounded towards zero.
constexpr FloatControl::Word other_word = FloatControl::initial | 0x8040U | 0x6000U;
#elif defined(__aarch64__)
constexpr FloatControl::Word other_word = FloatControl::initial | 1U << 24U | 3U << 22U;
#else
constexpr FloatControl::Word other_word = FloatControl::initial;
#endif

/// Sets the control word of this thread until the end of the scope.
class WithWord {
public:
    explicit WithWord(FloatControl::Word word) : _before(FloatControl::read()) {
        FloatControl::write(word);
    }
    WithWord(WithWord const&) = delete;
    WithWord& operator=(WithWord const&) = delete;
    ~WithWord() { FloatControl::write(_before); }

private:
    FloatControl::Word _before;
};

struct Results {
    std::vector<float> scaled;
    std::vector<float> sums;
    double squares = 0.0;
};

/// Scales numbers to subnormal ones, adds subnormal numbers, adds numbers that must be rounded, and
/// inspects.
Results compute(host::Queue& queue) {
    std::size_t const n = 37;
    std::vector<float> const normal(n, 0x1.8p-120F);
    std::vector<float> const subnormal(n, 0x1p-140F);
    Results results{std::vector<float>(n), std::vector<float>(n, 1.0F), 0.0};
    results.sums[3] = 0x1p-141F;
    std::vector<float> const added{0x1.8p-24F};
    ops::Inspection inspection;
    InspectSlice<float> const slice{subnormal.data(), n, 0};
    HostBackend::convert(&queue, results.scaled.data(), normal.data(), n, 0x1p-20F);
    HostBackend::accumulate(&queue, results.sums.data(), subnormal.data(), n);
    HostBackend::accumulate(&queue, results.sums.data(), added.data(), 1);
    HostBackend::inspect<float>(&queue, std::span<InspectSlice<float> const>(&slice, 1),
                                &inspection);
    queue.synchronise();
    results.squares = inspection.sum_of_squares();
    return results;
}

} // namespace

TEMPLATE_TEST_CASE("The control word of the program changes no bit of a command", "", InlineKind,
                   ThreadedKind, DelayingKind) {
    Results const expected = compute(*TestType::make(1));
    CHECK(expected.scaled[7] == 0x1.8p-140F);
    CHECK(expected.sums[3] == 0x1.8p-140F);
    CHECK(expected.sums[0] == 1.0F + 0x1p-23F); // rounded to nearest
    CHECK(expected.squares == 37 * 0x1p-280);
    Results found;
    FloatControl::Word after = 0;
    {
        WithWord const scope(other_word);
        found = compute(*TestType::make(2)); // threads inherit the word
        after = FloatControl::read();
    }
    CHECK(found.scaled == expected.scaled);
    CHECK(found.sums == expected.sums);
    CHECK(found.squares == expected.squares);
    CHECK((after & ~FloatControl::sticky) == (other_word & ~FloatControl::sticky));
}

TEST_CASE("The control word that the tests set changes results outside of commands") {
    if (other_word == FloatControl::initial) {
        return;
    }
    float volatile x = 0x1.8p-120F;
    float volatile flushed = 1.0F;
    {
        WithWord const scope(other_word);
        flushed = x * 0x1p-20F;
    }
    CHECK(flushed == 0.0F);
    CHECK(x * 0x1p-20F == 0x1.8p-140F);
}

TEMPLATE_TEST_CASE("A command that sets the control word changes no later command", "", InlineKind,
                   ThreadedKind, DelayingKind) {
    auto const queue = TestType::make(3);
    queue->enqueue([] { FloatControl::write(other_word); });
    FloatControl::Word seen = 0;
    queue->enqueue([&seen] { seen = FloatControl::read(); });
    queue->synchronise();
    FloatControl::write(FloatControl::initial);
    CHECK((seen & ~FloatControl::sticky) == FloatControl::initial);
}

} // namespace zero::test::float_control_test
