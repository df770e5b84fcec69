# cmake -DROOT=<repository> [-DMOST_FILES=<n>] [-DLEAST_MEDIAN=<lines>] [-DMOST_CEREMONY=<percent>] -P check_house.cmake
# The size of the house, in include/zero:
#   - at most MOST_FILES files, and at most 32 in a folder;
#   - half of the files have at least LEAST_MEDIAN lines;
#   - less than MOST_CEREMONY percent of the lines are there only because a file is a file ('#pragma once', includes, namespaces);
#   - a private header below 60 lines serves three files outside of its folder. Otherwise it belongs into the file that uses it, or into the list below;
#   - the rooms of stage/detail/ have an order: each includes only from itself and from the rooms before it.

cmake_minimum_required(VERSION 3.20)

if(NOT DEFINED MOST_FILES)
    set(MOST_FILES 448) # 420, 25 for offload, and 3 for secondary copies
endif()
if(NOT DEFINED LEAST_MEDIAN)
    set(LEAST_MEDIAN 80)
endif()
if(NOT DEFINED MOST_CEREMONY)
    set(MOST_CEREMONY 15)
endif()
set(most_in_a_folder 32)
set(small_lines 60)
set(rooms common memory gradients parameters optimizer decision state registration engine compose)

# Small, and apart for a reason: a header that needs another library or compiler (mpi, cub, config, launch, chunk_sizes), that two layers or two headers without
# one another share, that a public header includes because it must stay light, or that makes a cycle where it is used.
set(small_headers
    checkpoint/detail/encode_floats.hpp comm/detail/failure_record.hpp comm/detail/is_equal_on_all_ranks.hpp comm/detail/loopback_instantiations.hpp
    core/detail/shared_function.hpp core/detail/timeline_clock.hpp cuda/detail/chunk.hpp cuda/detail/chunk_sizes.cuh cuda/detail/config.cuh cuda/detail/cub.cuh
    cuda/detail/launch.cuh host/detail/copy_loop.hpp host/detail/count_loop.hpp host/detail/random_bits_avx2.hpp host/detail/run_loop.hpp launch/detail/variables.hpp
    layout/detail/contains_ascending.hpp mpi/detail/mpi.hpp ops/detail/uncontracted.hpp policy/detail/require_scale.hpp policy/detail/state_names.hpp stage/detail/common/rebuild_request.hpp
    stage/detail/engine/end_with_live_handles.hpp)

set(failures 0)
function(complain text)
    message("${text}")
    math(EXPR failures "${failures} + 1")
    set(failures ${failures} PARENT_SCOPE)
endfunction()

set(base "${ROOT}/include/zero")
file(GLOB_RECURSE files RELATIVE "${base}" "${base}/*.hpp" "${base}/*.cuh" "${base}/*.ipp" "${base}/*.tpp")
set(all_lines 0)
set(ceremony 0)
set(sizes "")
set(folders "")
foreach(file IN LISTS files)
    file(READ "${base}/${file}" text)
    string(REGEX REPLACE "[^\n]" "" lines "${text}")
    string(LENGTH "${lines}" lines)
    set(lines_of_${file} ${lines})
    math(EXPR all_lines "${all_lines} + ${lines}")
    math(EXPR padded "1000000 + ${lines}")
    list(APPEND sizes ${padded})
    string(REGEX MATCHALL "\n(#pragma once|#include |namespace |} // namespace )" matches "\n${text}")
    list(LENGTH matches count)
    math(EXPR ceremony "${ceremony} + ${count}")
    cmake_path(GET file PARENT_PATH folder)
    list(APPEND folders "${folder}")
    math(EXPR files_in_${folder} "0${files_in_${folder}} + 1")
    string(REGEX MATCHALL "#[ \t]*include[ \t]*\"[^\"]+" includes "${text}")
    foreach(include IN LISTS includes)
        string(REGEX REPLACE ".*\"" "" used "${include}")
        cmake_path(SET used NORMALIZE "${folder}/${used}")
        cmake_path(GET used PARENT_PATH used_folder)
        if(NOT used_folder STREQUAL folder)
            list(APPEND users_of_${used} "${file}")
        endif()
        if(folder MATCHES "^stage/detail/(.*)" AND used MATCHES "^stage/detail/([^/]+)/")
            list(FIND rooms "${CMAKE_MATCH_1}" used_rank)
            string(REGEX REPLACE "^stage/detail/" "" room "${folder}")
            list(FIND rooms "${room}" rank)
            if(rank LESS 0 OR used_rank LESS 0 OR used_rank GREATER rank)
                complain("${file}: includes ${used}, which is not in the room '${room}' or a room before it (order: ${rooms})")
            endif()
        endif()
    endforeach()
endforeach()

list(LENGTH files count)
if(count GREATER MOST_FILES)
    complain("include/zero has ${count} files, and may have ${MOST_FILES}")
endif()
list(REMOVE_DUPLICATES folders)
foreach(folder IN LISTS folders)
    if(files_in_${folder} GREATER most_in_a_folder)
        complain("include/zero/${folder} has ${files_in_${folder}} files, and a folder has at most ${most_in_a_folder}")
    endif()
endforeach()
list(SORT sizes)
math(EXPR middle "${count} / 2")
list(GET sizes ${middle} median)
math(EXPR median "${median} - 1000000")
if(median LESS LEAST_MEDIAN)
    complain("half of the files have at most ${median} lines, and ${LEAST_MEDIAN} are wanted")
endif()
math(EXPR percent "100 * ${ceremony} / ${all_lines}")
if(NOT percent LESS MOST_CEREMONY)
    complain("${percent} percent of the lines are ceremony, and less than ${MOST_CEREMONY} are wanted")
endif()
foreach(file IN LISTS files)
    if(file MATCHES "/detail/" AND NOT file MATCHES "\\.[it]pp$" AND lines_of_${file} LESS small_lines AND NOT file IN_LIST small_headers)
        list(REMOVE_DUPLICATES users_of_${file})
        list(LENGTH users_of_${file} users)
        if(users LESS 3)
            complain("${file}: has ${lines_of_${file}} lines and serves ${users} files outside of its folder; put it into the file that uses it")
        endif()
    endif()
endforeach()

if(failures GREATER 0)
    message(FATAL_ERROR "${failures} complaints about the house")
endif()
message("${count} files, ${all_lines} lines, median ${median}, ceremony ${percent} percent")
