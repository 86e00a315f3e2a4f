/*
 * sanitized.h: whether a test is built with a sanitizer that slows it down: for tests of times, and those that do less
 * there.  clang says it by __has_feature, gcc by macros.
 */
#pragma once

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define IG_THREAD_SANITIZED 1
#endif
#if __has_feature(address_sanitizer)
#define IG_ADDRESS_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) && !defined(IG_THREAD_SANITIZED)
#define IG_THREAD_SANITIZED 1
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(IG_ADDRESS_SANITIZED)
#define IG_ADDRESS_SANITIZED 1
#endif
#ifndef IG_THREAD_SANITIZED
#define IG_THREAD_SANITIZED 0
#endif
#ifndef IG_ADDRESS_SANITIZED
#define IG_ADDRESS_SANITIZED 0
#endif
