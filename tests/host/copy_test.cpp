#include "support/catch.hpp"

#include <zero/host/detail/copy_loop.hpp>
#include <zero/host/host_backend.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace zero::test::copy_test {

namespace {

constexpr std::size_t margin = 64; ///< bytes around the copy; also the number of alignments

std::vector<unsigned char> numbered(std::size_t bytes) {
    std::vector<unsigned char> result(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
        result[i] = static_cast<unsigned char>(i * 7 + i / 251 + 1);
    }
    return result;
}

/// Counts the bytes of `out` that differ from a copy of `in` to [begin, begin + bytes).
std::size_t wrong_bytes(std::vector<unsigned char> const& out, std::size_t begin,
                        unsigned char const* in, std::size_t bytes) {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
        bool const is_copied = i >= begin && i < begin + bytes;
        wrong += out[i] != (is_copied ? in[i - begin] : 0xeeU) ? 1 : 0;
    }
    return wrong;
}

} // namespace

TEST_CASE("A copy past the caches writes every byte and no other, at every length and alignment") {
    std::size_t wrong = 0;
    for (std::size_t bytes = 0; bytes <= 4 * margin + 1; ++bytes) {
        auto const in = numbered(bytes + margin);
        for (std::size_t to = 0; to < margin; ++to) {
            std::size_t const from = (to * 5 + bytes) % margin;
            std::vector<unsigned char> out(bytes + 2 * margin, 0xee);
            host::detail::copy_past_caches(out.data() + to, in.data() + from, bytes);
            wrong += wrong_bytes(out, to, in.data() + from, bytes);
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE(
    "A host backend copies bytes below and above the limit from which it bypasses the caches") {
    auto const queue = HostBackend::default_compute_queue();
    std::size_t const limit = host::detail::streaming_copy_bytes / 2;
    for (std::size_t const bytes : {std::size_t{0}, std::size_t{1}, limit - 1, limit, limit + 1}) {
        CAPTURE(bytes);
        auto const in = numbered(bytes + 3);
        std::vector<unsigned char> out(bytes + 2 * margin, 0xee);
        HostBackend::copy_bytes(queue, out.data() + 5, in.data() + 3, bytes);
        CHECK(wrong_bytes(out, 5, in.data() + 3, bytes) == 0);
    }
}

TEMPLATE_TEST_CASE("Tensors are copied to a bucket and back below and above the streaming limit",
                   "", (std::pair<float, float>), (std::pair<float, bfloat16>),
                   (std::pair<bfloat16, float>)) {
    using T = typename TestType::first_type;
    using InBucket = typename TestType::second_type;
    constexpr std::size_t streamed =
        host::detail::streaming_copy_bytes / (sizeof(T) + sizeof(InBucket));
    auto const value = [](std::size_t i) {
        return static_cast<float>(i % 256 + 1);
    }; // exact in each type
    auto const queue = HostBackend::default_compute_queue();
    for (std::size_t const elements : {streamed - 1, streamed}) {
        std::vector<std::size_t> const sizes{1, 63, 1000, elements - 1064};
        std::vector<std::vector<T>> tensors;
        std::vector<CopySlice<T>> slices;
        std::size_t begin = 0;
        for (std::size_t const size : sizes) {
            tensors.emplace_back(size);
            for (std::size_t i = 0; i < size; ++i) {
                tensors.back()[i] = from_float<T>(value(begin + i));
            }
            slices.push_back({tensors.back().data(), begin, size});
            begin += (size + 63) / 64 * 64;
        }
        std::vector<InBucket> bucket(begin, from_float<InBucket>(-1.0F));
        HostBackend::copy_to_bucket(queue, std::span<CopySlice<T> const>(slices), bucket.data());
        std::size_t wrong = 0;
        for (std::size_t slice = 0, at = 0; slice < sizes.size(); ++slice) {
            for (std::size_t const end = slice + 1 < sizes.size() ? slices[slice + 1].bucket_begin
                                                                  : bucket.size();
                 at < end; ++at) {
                bool const is_padding = at >= slices[slice].bucket_begin + sizes[slice];
                wrong += to_float(bucket[at]) != (is_padding ? -1.0F : value(at)) ? 1 : 0;
            }
        }
        CHECK(wrong == 0);
        for (InBucket& one : bucket) {
            one = from_float<InBucket>(-to_float(one));
        }
        HostBackend::copy_from_bucket(queue, std::span<CopySlice<T> const>(slices),
                                      static_cast<InBucket const*>(bucket.data()));
        for (std::size_t slice = 0; slice < sizes.size(); ++slice) {
            for (std::size_t i = 0; i < sizes[slice]; ++i) {
                wrong +=
                    to_float(tensors[slice][i]) != -value(slices[slice].bucket_begin + i) ? 1 : 0;
            }
        }
        CHECK(wrong == 0);
    }
}

} // namespace zero::test::copy_test
