#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/tier/file_tier.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace zero::test::file_tier_test {

namespace {

/// A file in memory whose calls answer as a test wants. Alignment 512, checked in every call.
class ScriptedFile final : public FileCalls {
public:
    static constexpr std::int64_t block = 512;
    int creation = 7;
    int allocation = 0;
    std::function<std::int64_t(std::size_t)> on_read, on_write; ///< replace the result, by call
    std::vector<std::byte> bytes;
    std::atomic<int> closed{0}, reads{0}, writes{0};
    std::atomic<bool> is_aligned{true};

    int create(char const*, bool is_direct) override { return is_direct ? creation : 8; }
    std::int64_t alignment(int, bool is_direct) override { return is_direct ? block : 1; }
    int allocate(int, std::uint64_t size) override {
        bytes.resize(size);
        return allocation;
    }
    std::int64_t read(int, void* to, std::size_t count, std::uint64_t offset) override {
        check(to, count, offset);
        auto const call = static_cast<std::size_t>(reads++);
        std::int64_t const result = on_read ? on_read(call) : static_cast<std::int64_t>(count);
        if (result > 0) {
            count = std::min(count, static_cast<std::size_t>(result));
            std::memcpy(to, bytes.data() + offset, count);
            return static_cast<std::int64_t>(count);
        }
        return result;
    }
    std::int64_t write(int, void const* from, std::size_t count, std::uint64_t offset) override {
        check(from, count, offset);
        auto const call = static_cast<std::size_t>(writes++);
        std::int64_t const result = on_write ? on_write(call) : static_cast<std::int64_t>(count);
        if (result > 0) {
            count = std::min(count, static_cast<std::size_t>(result));
            std::memcpy(bytes.data() + offset, from, count);
            return static_cast<std::int64_t>(count);
        }
        return result;
    }
    void close(int) noexcept override { ++closed; }

private:
    void check(void const* memory, std::size_t count, std::uint64_t offset) {
        auto const address = reinterpret_cast<std::uintptr_t>(memory);
        is_aligned =
            is_aligned && address % block == 0 && count % block == 0 && offset % block == 0;
    }
};

struct alignas(4096) Page {
    std::byte bytes[4096];
};

std::vector<Page> staging_for(FileTier const& tier, std::size_t chunk) {
    return std::vector<Page>((tier.staging_bytes(chunk) + 4095) / 4096);
}

std::byte* begin_of(std::vector<Page>& pages) {
    return pages.empty() ? nullptr : pages[0].bytes;
}

void fill(std::vector<Page>& pages, std::size_t bytes, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (std::size_t at = 0; at < bytes; ++at) {
        begin_of(pages)[at] = static_cast<std::byte>(random());
    }
}

std::string message_of(FileTier const& tier) {
    try {
        tier.rethrow_failure();
    } catch (TierError const& error) {
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("Chunks of any size come back as they were written, from a file without a name") {
    TemporaryFolder const folder;
    HostMemoryResource memory;
    std::vector<std::uint64_t> const sizes{1, 0, 4096, 4095, 100'000, 3'000'001, 64};
    FileTier tier({.path = folder.path(), .allow_page_cache = true}, sizes, "rank 0", memory);
    CHECK(std::filesystem::is_empty(folder.path()));
    std::uint64_t all = 0;
    std::vector<std::vector<Page>> written, read;
    for (std::size_t chunk = 0; chunk < sizes.size(); ++chunk) {
        written.push_back(staging_for(tier, chunk));
        read.push_back(staging_for(tier, chunk));
        fill(written.back(), sizes[chunk], chunk);
        CHECK(tier.staging_bytes(chunk) >= sizes[chunk]);
        CHECK(tier.staging_bytes(chunk) < sizes[chunk] + tier.alignment());
        all += sizes[chunk];
    }
    for (int turn = 0; turn < 3; ++turn) {
        for (std::size_t chunk = 0; chunk < sizes.size(); ++chunk) {
            auto const done = tier.write(chunk, begin_of(written[chunk]));
            tier.reading_queue(chunk)->wait(done);
            tier.read(chunk, begin_of(read[chunk])).synchronise();
            tier.rethrow_failure();
            if (sizes[chunk] != 0) {
                CHECK(std::memcmp(begin_of(written[chunk]), begin_of(read[chunk]), sizes[chunk])
                      == 0);
            }
        }
    }
    CHECK(tier.bytes_written() == 3 * all);
    CHECK(tier.bytes_read() == 3 * all);
}

TEST_CASE("A chunk that was never written is zero, and a write that is left out changes nothing") {
    ScriptedFile file;
    TemporaryFolder const folder;
    HostMemoryResource memory;
    std::vector<std::uint64_t> const sizes{700};
    FileTier tier({.path = folder.path(), .calls = &file}, sizes, "rank 0", memory);
    CHECK(tier.size_bytes() == 1024);
    auto pages = staging_for(tier, 0);
    fill(pages, 700, 1);
    tier.read(0, begin_of(pages)).synchronise();
    CHECK(std::all_of(begin_of(pages), begin_of(pages) + 700,
                      [](std::byte value) { return value == std::byte{0}; }));
    bool is_left_out = true;
    fill(pages, 700, 2);
    tier.write(0, begin_of(pages), &is_left_out).synchronise();
    CHECK(file.writes == 0);
    CHECK(tier.bytes_written() == 0);
    is_left_out = false;
    tier.write(0, begin_of(pages), &is_left_out).synchronise();
    CHECK(file.writes == 1);
    CHECK(file.is_aligned);
    tier.rethrow_failure();
}

TEST_CASE("Interrupted and short calls are continued") {
    ScriptedFile file;
    std::int64_t const answers[] = {-EINTR, 512, -EAGAIN, 1024, 512, 1 << 20};
    auto const scripted = [&](std::size_t call) { return call < 6 ? answers[call] : 1 << 20; };
    file.on_read = scripted;
    file.on_write = scripted;
    TemporaryFolder const folder;
    HostMemoryResource memory;
    std::vector<std::uint64_t> const sizes{5000};
    FileTier tier({.path = folder.path(), .calls = &file}, sizes, "rank 0", memory);
    auto written = staging_for(tier, 0), read = staging_for(tier, 0);
    fill(written, 5000, 3);
    tier.write(0, begin_of(written)).synchronise();
    tier.read(0, begin_of(read)).synchronise();
    tier.rethrow_failure();
    CHECK(file.writes == 6);
    CHECK(file.reads == 6);
    CHECK(std::memcmp(begin_of(written), begin_of(read), 5000) == 0);
    CHECK(file.is_aligned);
}

TEST_CASE("A failed request is a TierError that names rank, chunk and place, and events complete") {
    TemporaryFolder const folder;
    HostMemoryResource memory;
    std::vector<std::uint64_t> const sizes{600, 600, 600};
    struct Fault {
        bool is_write;
        std::int64_t answer;
        char const* reason;
    };
    for (auto const& fault :
         {Fault{true, -EIO, "Input/output error"}, Fault{true, -ENOSPC, "No space left"},
          Fault{false, -EIO, "Input/output error"}, Fault{false, 0, "ended early"},
          Fault{true, 100, "less than one block"}}) {
        ScriptedFile file;
        FileTier tier({.path = folder.path(), .calls = &file}, sizes, "rank 3", memory);
        tier.describe_by([](void const* name,
                            std::size_t) { return std::string(static_cast<char const*>(name)); },
                         "optimizer state of 'w'");
        auto pages = staging_for(tier, 2);
        fill(pages, 600, 4);
        tier.write(2, begin_of(pages)).synchronise();
        tier.rethrow_failure();
        (fault.is_write ? file.on_write : file.on_read) = [&](std::size_t) { return fault.answer; };
        auto const written = tier.write(2, begin_of(pages));
        tier.reading_queue(2)->wait(written);
        tier.read(2, begin_of(pages)).synchronise();
        std::string const message = message_of(tier);
        INFO(message);
        CHECK(message.find("rank 3: optimizer state of 'w', at byte 2048") != std::string::npos);
        CHECK(message.find(fault.reason) != std::string::npos);
    }
}

TEST_CASE("Each flipped bit of a chunk is found before it is used") {
    ScriptedFile file;
    TemporaryFolder const folder;
    HostMemoryResource memory;
    std::vector<std::uint64_t> const sizes{40};
    for (std::size_t byte = 0; byte < 40; ++byte) {
        FileTier tier({.path = folder.path(), .calls = &file}, sizes, "rank 0", memory);
        auto pages = staging_for(tier, 0);
        fill(pages, 40, byte);
        tier.write(0, begin_of(pages)).synchronise();
        file.bytes[byte] ^= static_cast<std::byte>(1U << (byte % 8));
        tier.read(0, begin_of(pages)).synchronise();
        CHECK(message_of(tier).find("is not what was written") != std::string::npos);
    }
}

TEST_CASE("What cannot be a tier is refused by name, and leaves nothing") {
    TemporaryFolder const folder;
    HostMemoryResource memory;
    std::vector<std::uint64_t> const sizes{600};
    auto const refusal = [&](ScriptedFile& file, std::filesystem::path const& path, bool allow) {
        try {
            FileTier const tier({.path = path, .allow_page_cache = allow, .calls = &file}, sizes,
                                "rank 1", memory);
        } catch (Error const& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    ScriptedFile file;
    CHECK(refusal(file, folder / "absent", false).find("not a folder; make it")
          != std::string::npos);
    CHECK(refusal(file, "", false).find("'', which is not a folder; set it") != std::string::npos);
    file.creation = -EACCES;
    CHECK(refusal(file, folder.path(), false).find("Permission denied") != std::string::npos);
    file.creation = -EINVAL;
    CHECK(refusal(file, folder.path(), false).find("allow_page_cache") != std::string::npos);
    CHECK(file.closed == 0);
    CHECK(refusal(file, folder.path(), true).empty());
    CHECK(file.closed == 1);
    file.creation = 7;
    file.allocation = -ENOSPC;
    CHECK(refusal(file, folder.path(), false).find("no room for a file of 1024 bytes")
          != std::string::npos);
    CHECK(file.closed == 2);
    CHECK(memory.allocated_bytes() == 0);
}

TEST_CASE("Reads, writes and other chunks run at once: a read may wait for a later write") {
    // The first read is held until the write of another chunk has begun; with one thread for both
    // it would wait for ever.
    ScriptedFile file;
    std::atomic<bool> has_written{false};
    file.on_write = [&](std::size_t call) {
        has_written = has_written || call == 2;
        return std::int64_t{1} << 20;
    };
    TemporaryFolder const folder;
    HostMemoryResource memory;
    std::vector<std::uint64_t> const sizes{512, 512, 512};
    FileTier tier({.path = folder.path(), .calls = &file}, sizes, "rank 0", memory);
    auto first = staging_for(tier, 0), second = staging_for(tier, 0), third = staging_for(tier, 0);
    tier.write(0, begin_of(first)).synchronise();
    tier.write(1, begin_of(second)).synchronise();
    file.on_read = [&](std::size_t) {
        while (!has_written) {}
        return std::int64_t{1} << 20;
    };
    auto const read = tier.read(0, begin_of(first));
    auto const written = tier.write(2, begin_of(third));
    read.synchronise();
    written.synchronise();
    tier.rethrow_failure();
    CHECK(file.reads == 1);
    CHECK(file.writes == 3);
}

TEST_CASE("Cancelled requests make no call, and none outlives its memory") {
    for (bool const is_destroyed : {false, true}) {
        ScriptedFile file;
        std::atomic<int> begun{0};
        std::atomic<bool> is_open{false};
        TemporaryFolder const folder;
        HostMemoryResource memory;
        std::vector<std::uint64_t> const sizes(8, 600);
        std::vector<std::vector<Page>> staging;
        std::string message;
        std::thread opening;
        {
            FileTier tier({.path = folder.path(), .calls = &file}, sizes, "rank 1", memory);
            for (std::size_t chunk = 0; chunk < 8; ++chunk) {
                staging.push_back(staging_for(tier, chunk));
                tier.write(chunk, begin_of(staging[chunk])).synchronise();
            }
            file.on_read = [&](std::size_t) { // of each queue; the first half of a chunk
                ++begun;
                begun.notify_all();
                is_open.wait(false);
                return std::int64_t{512};
            };
            std::vector<host::Event> events;
            for (std::size_t chunk = 0; chunk < 8; ++chunk) {
                events.push_back(tier.read(chunk, begin_of(staging[chunk])));
                tier.writing_queue(chunk)->wait(events.back());
                events.push_back(tier.write(chunk, begin_of(staging[chunk])));
            }
            for (int seen = 0; (seen = begun) < static_cast<int>(FileTier::queues);) {
                begun.wait(seen);
            }
            if (!is_destroyed) {
                tier.cancel();
                is_open = true;
                is_open.notify_all();
                for (auto const& event : events) {
                    event.synchronise();
                }
                message = message_of(tier);
            } else { // the calls end at some time after the destructor has begun
                opening = std::thread([&] {
                    is_open = true;
                    is_open.notify_all();
                });
            }
        }
        staging.clear();
        if (is_destroyed) {
            opening.join();
        } else {
            CHECK(file.reads == FileTier::queues);
            CHECK(file.writes == 8);
            CHECK(message.find("rank 1: chunk ") != std::string::npos);
            CHECK(message.find("was cancelled") != std::string::npos);
        }
        CHECK(file.closed == 1);
    }
}

TEST_CASE("Every byte of a chunk has an address that is none of memory and names the chunk") {
    TemporaryFolder const folder;
    ScriptedFile file;
    HostMemoryResource memory;
    std::vector<std::uint64_t> const sizes{700, 512, 1};
    FileTier tier({.path = folder.path(), .calls = &file}, sizes, "rank 0", memory);
    int elsewhere = 0;
    CHECK(tier.chunk_at(&elsewhere) == sizes.size()); // before any is reserved
    for (std::size_t chunk = 0; chunk < sizes.size(); ++chunk) {
        std::byte* const begin = tier.address(chunk);
        CHECK(begin == tier.address(0) + (chunk == 0 ? 0 : chunk == 1 ? 1024 : 1536));
        CHECK(tier.chunk_at(begin) == chunk);
        CHECK(tier.chunk_at(begin + tier.staging_bytes(chunk) - 1) == chunk);
    }
    CHECK(tier.chunk_at(tier.address(2) + 512) == sizes.size());
    CHECK(tier.chunk_at(tier.address(0) - 1) == sizes.size());
    CHECK(tier.chunk_at(&elsewhere) == sizes.size());
    CHECK(tier.chunk_at(nullptr) == sizes.size());
}

} // namespace zero::test::file_tier_test
