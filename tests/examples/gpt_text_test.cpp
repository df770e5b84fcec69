#include "support/catch.hpp"

#include <gpt/ngram.hpp>
#include <gpt/text.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

std::vector<std::uint8_t> bytes_of(std::string const& text) {
    return {text.begin(), text.end()};
}

std::vector<std::uint8_t> counting_bytes(std::size_t count) {
    std::vector<std::uint8_t> bytes(count);
    for (std::size_t index = 0; index < count; ++index) {
        bytes[index] = static_cast<std::uint8_t>(index);
    }
    return bytes;
}

} // namespace

TEST_CASE("Unigram and bigram losses agree with numbers worked out by hand", "[gpt]") {
    // In 4 bytes a and b occur twice each; b follows a twice, a follows b once. The loss is that of
    // the b and the second a of 'aba'.
    auto const losses = gpt::ngram_losses(bytes_of("abab"), bytes_of("aba"), 1.0);
    CHECK(losses.unigram == zero::test::Approx(std::log(260.0 / 3.0)).epsilon(1e-14));
    CHECK(losses.bigram
          == zero::test::Approx((std::log(258.0 / 3.0) + std::log(257.0 / 2.0)) / 2.0)
                 .epsilon(1e-14));
}

TEST_CASE("The last tenth of a text is held out", "[gpt]") {
    std::string const bytes = std::string(90, 'x') + std::string(10, 'y');
    gpt::Text const text(bytes, 8);
    CHECK(text.training().size() == 90);
    CHECK(text.validation().size() == 10);
    CHECK(std::count(text.validation().begin(), text.validation().end(), 'y') == 10);
    CHECK_THROWS_WITH(
        gpt::Text(bytes, 10),
        zero::test::contains_text("its last tenth has 10 bytes, and a sample needs 11"));
}

TEST_CASE(
    "A sample depends on seed, step, micro-step and its number, not on the rank that draws it",
    "[gpt]") {
    auto const text = counting_bytes(200);
    gpt::Batch whole(4, 16);
    gpt::Batch part(2, 16);
    whole.fill(text, gpt::SamplePositions::drawn(text.size(), 16, 1, 2, 3, 0));
    for (std::size_t first : {0U, 2U}) {
        part.fill(text, gpt::SamplePositions::drawn(text.size(), 16, 1, 2, 3, first));
        CHECK(std::equal(part.tokens().begin(), part.tokens().end(),
                         whole.tokens().begin() + static_cast<std::ptrdiff_t>(first * 16)));
        CHECK(std::equal(part.targets().begin(), part.targets().end(),
                         whole.targets().begin() + static_cast<std::ptrdiff_t>(first * 16)));
    }
    std::vector<std::uint8_t> const kept(whole.tokens().begin(), whole.tokens().end());
    auto const is_same = [&] {
        return std::equal(kept.begin(), kept.end(), whole.tokens().begin());
    };
    whole.fill(text, gpt::SamplePositions::drawn(text.size(), 16, 1, 2, 3, 0));
    CHECK(is_same());
    whole.fill(text, gpt::SamplePositions::drawn(text.size(), 16, 2, 2, 3, 0));
    CHECK_FALSE(is_same());
    whole.fill(text, gpt::SamplePositions::drawn(text.size(), 16, 1, 3, 3, 0));
    CHECK_FALSE(is_same());
    whole.fill(text, gpt::SamplePositions::drawn(text.size(), 16, 1, 2, 4, 0));
    CHECK_FALSE(is_same());
}

TEST_CASE("Targets are the bytes that follow, and every position of the text is reached", "[gpt]") {
    auto const text = counting_bytes(20);
    gpt::Batch batch(8, 16);
    std::vector<int> starts(20, 0);
    std::size_t wrong = 0;
    for (std::uint64_t step = 0; step < 50; ++step) {
        batch.fill(text, gpt::SamplePositions::drawn(text.size(), 16, 0, step, 0, 0));
        for (std::size_t index = 0; index < batch.tokens().size(); ++index) {
            wrong += batch.targets()[index] == batch.tokens()[index] + 1 ? 0 : 1;
        }
        for (std::size_t sample = 0; sample < 8; ++sample) {
            ++starts[batch.tokens()[sample * 16]];
        }
    }
    CHECK(wrong == 0);
    // A sample needs 17 of the 20 bytes, so it starts at 0, 1, 2 or 3.
    CHECK(std::count_if(starts.begin(), starts.end(), [](int count) { return count > 60; }) == 4);
    CHECK(starts[4] == 0);
}

TEST_CASE("Evaluation samples are spread from the first to the last place", "[gpt]") {
    auto const text = counting_bytes(101);
    gpt::Batch batch(2, 4);
    batch.fill(text, gpt::SamplePositions::spread(text.size(), 4, 2, 0, 2));
    CHECK(batch.tokens()[0] == 0);
    batch.fill(text, gpt::SamplePositions::spread(text.size(), 4, 2, 1, 2));
    CHECK(batch.targets()[7] == 100);
}

TEST_CASE("A file that cannot be read is named", "[gpt]") {
    std::vector<std::string> const paths{"/does/not/exist"};
    CHECK_THROWS_WITH(gpt::read_files(paths), zero::test::contains_text("/does/not/exist"));
}
